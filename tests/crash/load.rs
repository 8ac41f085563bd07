//! Several threads that make, overwrite, cut and remove files, and note what succeeded.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::scene::Scene;

/// A running load.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    log: Arc<Mutex<Acknowledged>>,
    threads: Vec<JoinHandle<()>>,
}

/// What has returned success so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledged {
    /// System calls that did.
    pub(crate) steps: usize,
    /// Texts that are in the workspace or in the trash, with the path each was written to.
    texts: BTreeMap<String, PathBuf>,
    /// Names that a rename and an fsync of the directory have made, with their text.
    durable: BTreeMap<PathBuf, String>,
}

impl Load {
    /// Starts `threads` of them below `dir`. With `durable` every text is synced before it
    /// counts, as a power cut demands.
    pub(crate) fn start(dir: &Path, threads: usize, durable: bool) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let log = Arc::new(Mutex::new(Acknowledged::default()));
        let run = |i: usize| {
            let (dir, stop, log) = (dir.join(format!("t{i}")), stop.clone(), log.clone());
            std::thread::spawn(move || {
                // The daemon dies under it: the error is the end of the work.
                let _ = work(&dir, &stop, &log, durable);
            })
        };
        let threads = (0..threads).map(run).collect();
        Self { stop, log, threads }
    }

    /// What has been acknowledged by now; the load goes on.
    pub(crate) fn so_far(&self) -> Acknowledged {
        self.log.lock().unwrap().clone()
    }

    /// Waits until something was acknowledged, on a machine however busy.
    pub(crate) fn under_way(&self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while self.so_far().steps == 0 {
            assert!(std::time::Instant::now() < until, "the load does not begin");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Ends the threads and says what had been acknowledged.
    pub(crate) fn stop(self) -> Acknowledged {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.log.lock().unwrap().clone()
    }
}

fn work(dir: &Path, stop: &AtomicBool, log: &Mutex<Acknowledged>, durable: bool) -> io::Result<()> {
    std::fs::create_dir(dir)?;
    if durable {
        sync_dir(dir.parent().unwrap())?;
    }
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        one_round(dir, round, log, durable)?;
        round += 1;
    }
    Ok(())
}

/// Makes three files; removes one, renames over the second, cuts the third.
fn one_round(dir: &Path, round: usize, log: &Mutex<Acknowledged>, durable: bool) -> io::Result<()> {
    let name = |what: &str| dir.join(format!("{what}{round}"));
    let step = || log.lock().unwrap().steps += 1;
    for what in ["removed", "replaced", "cut"] {
        write(&name(what), durable)?;
        step();
    }
    if durable {
        sync_dir(dir)?;
    }
    for what in ["removed", "replaced", "cut"] {
        let path = name(what);
        log.lock().unwrap().texts.insert(text(&path), path);
    }
    std::fs::remove_file(name("removed"))?;
    step();
    let fresh = name("fresh");
    let content = write(&fresh, durable)?;
    std::fs::rename(&fresh, name("replaced"))?;
    step();
    if durable {
        sync_dir(dir)?;
        log.lock()
            .unwrap()
            .durable
            .insert(name("replaced"), content);
    }
    let mut file = File::create(name("cut"))?;
    step();
    file.write_all(b"new\n")
}

fn text(path: &Path) -> String {
    format!("text of {}\n", path.display()).repeat(20)
}

/// Writes the path's own text; it counts once it is complete.
fn write(path: &Path, durable: bool) -> io::Result<String> {
    let content = text(path);
    let mut file = File::create_new(path)?;
    file.write_all(content.as_bytes())?;
    if durable {
        file.sync_all()?;
    }
    Ok(content)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

impl Acknowledged {
    /// Demands of a recovered mount that every acknowledged text is in the workspace or in
    /// staging, and that durable names are there.
    #[track_caller]
    pub(crate) fn assert_kept(&self, scene: &Scene, what: &str) {
        let missing = self.missing(scene);
        assert!(
            missing.is_empty(),
            "{what}: of {} texts lost {missing:?}",
            self.texts.len()
        );
    }

    /// What is lost, at most ten of it.
    pub(crate) fn missing(&self, scene: &Scene) -> Vec<String> {
        let mut found = std::collections::BTreeSet::new();
        for root in [scene.mounted.clone(), scene.source.join(".trashfs/ops")] {
            collect(&root, &mut found);
        }
        let lost = self.texts.iter().filter(|(text, _)| !found.contains(*text));
        let unnamed = self
            .durable
            .iter()
            .filter(|(path, text)| std::fs::read_to_string(path).map_or(true, |now| now != **text));
        lost.map(|(_, path)| format!("text of {}", path.display()))
            .chain(unnamed.map(|(path, _)| format!("name {}", path.display())))
            .take(10)
            .collect()
    }
}

fn collect(dir: &Path, found: &mut std::collections::BTreeSet<String>) {
    for item in std::fs::read_dir(dir).unwrap() {
        let item = item.unwrap();
        let kind = item.file_type().unwrap();
        if kind.is_dir() {
            collect(&item.path(), found);
        } else if kind.is_file()
            && let Ok(text) = std::fs::read_to_string(item.path())
        {
            found.insert(text);
        }
    }
}
