//! A bounded map from which several threads read: it forgets, roughly, what was used longest ago.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};

use parking_lot::Mutex;

const SHARDS: usize = 16;

/// Keeps at least the last `capacity` entries used, at most twice as many.
///
/// Each shard has two generations: what is inserted or found goes into the young one; when that
/// is full it becomes the old one, and what was in the old one is dropped.
pub(super) struct Recent<K, V> {
    shards: Vec<Mutex<Generations<K, V>>>,
    hasher: RandomState,
    young_max: usize,
}

struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        let shards = (0..SHARDS)
            .map(|_| {
                Mutex::new(Generations {
                    young: HashMap::new(),
                    old: HashMap::new(),
                })
            })
            .collect();
        Self {
            shards,
            hasher: RandomState::new(),
            young_max: capacity.div_ceil(SHARDS).max(1),
        }
    }

    fn shard(&self, key: &K) -> &Mutex<Generations<K, V>> {
        // The high bits: the maps inside use the low ones of another hash.
        let index = (self.hasher.hash_one(key) >> 32) as usize % SHARDS;
        &self.shards[index]
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        let mut shard = self.shard(key).lock();
        if let Some(value) = shard.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = shard.old.remove_entry(key)?;
        let found = value.clone();
        self.put(&mut shard, key, value);
        Some(found)
    }

    pub(super) fn insert(&self, key: K, value: V) {
        let mut shard = self.shard(&key).lock();
        shard.old.remove(&key);
        self.put(&mut shard, key, value);
    }

    fn put(&self, shard: &mut Generations<K, V>, key: K, value: V) {
        if shard.young.len() >= self.young_max && !shard.young.contains_key(&key) {
            shard.old = std::mem::take(&mut shard.young);
        }
        shard.young.insert(key, value);
    }

    pub(super) fn remove(&self, key: &K) -> Option<V> {
        let mut shard = self.shard(key).lock();
        shard.young.remove(key).or_else(|| shard.old.remove(key))
    }

    pub(super) fn retain(&self, keep: impl Fn(&K, &V) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.young.retain(|k, v| keep(k, v));
            shard.old.retain(|k, v| keep(k, v));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_and_keeps_what_is_used() {
        let map = Recent::new(16 * 8);
        map.insert(0u32, 0u32);
        for n in 1..10_000 {
            map.insert(n, n);
            assert_eq!(map.get(&0), Some(0));
        }
        let kept = (0..10_000).filter(|n| map.remove(n).is_some()).count();
        assert!((16..=16 * 16).contains(&kept), "{kept}");
        assert_eq!(map.get(&0), None);
    }
}
