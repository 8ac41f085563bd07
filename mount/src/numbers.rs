//! Which number the kernel knows a file by.

use std::collections::HashMap;

use parking_lot::{Mutex, RwLock};

use crate::{Attr, NodeId};

/// The number of the root, fixed by the protocol.
pub(crate) const ROOT: NodeId = 1;

/// Numbers below are inode numbers of the root's filesystem; the bits above name another one.
const INO_BITS: u32 = 48;
/// The range of numbers that are given out one by one.
const ALLOCATED: u64 = 0xffff;

/// Derives node numbers from `(st_dev, st_ino)`: so that they outlive the mount, the root's
/// filesystem keeps its own; other filesystems inside the tree get a prefix each, in the order in
/// which they are met.
pub(crate) struct Numbers {
    root_dev: u64,
    prefixes: RwLock<HashMap<u64, u64>>,
    allocated: Mutex<HashMap<(u64, u64), NodeId>>,
}

impl Numbers {
    pub(crate) fn new(root_dev: u64) -> Self {
        Self {
            root_dev,
            prefixes: RwLock::default(),
            allocated: Mutex::default(),
        }
    }

    /// The number of the file with these attributes.
    pub(crate) fn of(&self, attr: &Attr) -> NodeId {
        self.of_ino(attr.dev, attr.ino)
    }

    /// The number of inode `ino` on device `dev`.
    pub(crate) fn of_ino(&self, dev: u64, ino: u64) -> NodeId {
        let fits = ino >> INO_BITS == 0;
        if dev == self.root_dev && fits && ino > ROOT {
            return ino;
        }
        match self.prefix(dev) {
            Some(prefix) if fits => prefix << INO_BITS | ino,
            _ => self.allocate(dev, ino),
        }
    }

    /// `None` for the root's own filesystem and once there are too many others.
    fn prefix(&self, dev: u64) -> Option<u64> {
        if dev == self.root_dev {
            return None;
        }
        if let Some(&prefix) = self.prefixes.read().get(&dev) {
            return Some(prefix);
        }
        let mut prefixes = self.prefixes.write();
        let next = prefixes.len() as u64 + 1;
        if next >= ALLOCATED && !prefixes.contains_key(&dev) {
            return None;
        }
        Some(*prefixes.entry(dev).or_insert(next))
    }

    fn allocate(&self, dev: u64, ino: u64) -> NodeId {
        let mut allocated = self.allocated.lock();
        let next = ALLOCATED << INO_BITS | allocated.len() as u64;
        *allocated.entry((dev, ino)).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_filesystem_keeps_its_inode_numbers() {
        let numbers = Numbers::new(7);
        assert_eq!(numbers.of_ino(7, 12), 12);
    }

    #[test]
    fn inode_one_is_not_mistaken_for_the_root() {
        let numbers = Numbers::new(7);
        let one = numbers.of_ino(7, 1);
        assert_ne!(one, ROOT);
        assert_eq!(numbers.of_ino(7, 1), one);
    }

    #[test]
    fn filesystems_do_not_collide() {
        let numbers = Numbers::new(7);
        let all = [
            numbers.of_ino(7, 5),
            numbers.of_ino(8, 5),
            numbers.of_ino(9, 5),
            numbers.of_ino(9, 5 | 1 << 50),
            numbers.of_ino(7, 5 | 1 << 50),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
    }
}
