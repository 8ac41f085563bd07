//! The mount, the plain directory beside it, and what must still exist.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags};

use crate::common::{Station, Workspace, run};
use crate::step::{Batch, PATHS, Step, Then};

/// One path may be captured so often before the policy drops its oldest version.
const VERSIONS_MAX: usize = 9;

/// What is compared of a file: kind and mode, content, and the first path of the same inode.
type Shape = BTreeMap<PathBuf, (u32, String, PathBuf)>;

pub(crate) struct World {
    station: Arc<Station>,
    source: PathBuf,
    mounted: PathBuf,
    ws: Option<Workspace>,
    case: usize,
    /// The plain directory of this case.
    plain: PathBuf,
    /// The mounted directory of this case.
    dir: PathBuf,
    /// Texts that must be in the tree or in staging.
    texts: BTreeSet<String>,
    /// Captures by path.
    captured: BTreeMap<usize, usize>,
    written: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        let station = Station::new();
        let (source, mounted) = (station.dir("source"), station.dir("mounted"));
        let mut world = Self {
            plain: station.dir("plain"),
            dir: mounted.clone(),
            station,
            source,
            mounted,
            ws: None,
            case: 0,
            texts: BTreeSet::new(),
            captured: BTreeMap::new(),
            written: 0,
        };
        world.mount();
        world
    }

    fn mount(&mut self) {
        let source = self.source.clone();
        self.ws = Some(self.station.mount_with(&self.mounted, |command| {
            command.arg("--source").arg(&source);
        }));
    }

    fn ws(&self) -> &Workspace {
        self.ws.as_ref().unwrap()
    }

    fn trash<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> crate::common::Answer {
        self.ws().trash(args)
    }

    /// A new case in directories of its own.
    pub(crate) fn begin(&mut self) {
        self.case += 1;
        let name = format!("case{}", self.case);
        self.plain = self.station.dir("plain").join(&name);
        self.dir = self.mounted.join(&name);
        self.texts.clear();
        self.captured.clear();
        for dir in [&self.plain, &self.dir] {
            std::fs::create_dir(dir).unwrap();
        }
        self.close();
    }

    /// Ends the operation that is open, so that the next step begins another.
    fn close(&self) {
        self.trash(["list", "--json", "--limit", "1"]).ok();
    }

    pub(crate) fn perform(&mut self, batch: &Batch) -> Result<(), String> {
        let before = shape(&self.plain);
        let mut removed = false;
        let mut only_removals = true;
        for step in &batch.steps {
            if self.captured_too_often(step) {
                continue;
            }
            let outcome = self.step(step)?;
            let removal = matches!(step, Step::Remove(_) | Step::RemoveTree(_));
            removed |= removal && outcome;
            only_removals &= removal;
        }
        self.close();
        self.check("after the steps")?;
        self.then(&batch.then, (removed && only_removals).then_some(&before))
    }

    /// Both directories get the step; their answers must agree. Says whether it succeeded.
    fn step(&mut self, step: &Step) -> Result<bool, String> {
        self.written += 1;
        let text = format!("text {} of case {}\n", self.written, self.case);
        if let Step::Append(p) | Step::Truncate(p, _) = step {
            let old = std::fs::read_to_string(self.plain.join(PATHS[*p])).unwrap_or_default();
            let grows = !matches!(step, Step::Truncate(_, n) if usize::from(*n) < old.len());
            if grows {
                // Changed in place, destroying nothing: not kept.
                self.texts.remove(&old);
            }
        }
        let plain = apply(step, &self.plain, &text).map_err(|e| e.raw_os_error());
        let mounted = apply(step, &self.dir, &text).map_err(|e| e.raw_os_error());
        if plain != mounted {
            return Err(format!(
                "{step:?}: {plain:?} in the backing, {mounted:?} in the mount"
            ));
        }
        self.remember();
        Ok(plain.is_ok())
    }

    fn captured_too_often(&mut self, step: &Step) -> bool {
        let paths = match step {
            Step::RemoveTree(_) | Step::Rename(..) | Step::Exchange(..) => {
                (0..PATHS.len()).collect()
            }
            Step::Write(p) | Step::Truncate(p, _) | Step::Remove(p) => vec![*p],
            _ => return false,
        };
        let too_often = paths
            .iter()
            .any(|p| self.captured.get(p).is_some_and(|n| *n >= VERSIONS_MAX));
        if !too_often {
            for path in paths {
                *self.captured.entry(path).or_insert(0) += 1;
            }
        }
        too_often
    }

    /// All texts of the tree as it is must exist from now on.
    fn remember(&mut self) {
        self.texts.extend(texts(&self.plain));
    }

    fn then(&mut self, then: &Then, undone: Option<&Shape>) -> Result<(), String> {
        match then {
            Then::Nothing => return Ok(()),
            Then::Undo => return self.undo(undone),
            Then::UndoReplace => self.verb(&["undo", "--cause", "replace"])?,
            Then::Restore(which) => self.restore(*which, &[])?,
            Then::Swap(which) => self.restore(*which, &["--swap"])?,
            Then::Remount => {
                self.ws.take().unwrap().unmount();
                self.mount();
            }
            Then::Crash => {
                self.ws.take().unwrap().kill();
                self.mount();
            }
        }
        self.follow();
        self.check(&format!("after {then:?}"))
    }

    /// Undo of removals alone gives the tree as it was before them.
    fn undo(&mut self, expected: Option<&Shape>) -> Result<(), String> {
        self.verb(&["undo"])?;
        if let Some(expected) = expected {
            let now = shape(&self.dir);
            if now != *expected {
                return Err(format!("undo gave {now:#?}\ninstead of {expected:#?}"));
            }
        }
        self.follow();
        self.check("after undo")
    }

    /// A verb succeeds, says what it left alone, or changes nothing.
    fn verb(&self, args: &[&str]) -> Result<(), String> {
        let before = shape(&self.dir);
        let answer = self.trash(args);
        match answer.code {
            0 => Ok(()),
            1 | 2 if shape(&self.dir) == before => Ok(()),
            // Part of it was left alone, and the answer says which.
            2 if answer.json()["leftAlone"][0].is_object() => Ok(()),
            _ => Err(format!("{args:?} changed the tree and failed: {answer:?}")),
        }
    }

    fn restore(&self, which: usize, more: &[&str]) -> Result<(), String> {
        let name = format!("case{}/", self.case);
        let entries = self.ws().list(&["--all"]);
        let mine: Vec<_> = entries
            .iter()
            .filter(|e| e["roots"].to_string().contains(&name))
            .collect();
        if mine.is_empty() {
            return Ok(());
        }
        let mut args = vec!["restore", mine[which % mine.len()]["id"].as_str().unwrap()];
        args.extend(more);
        self.verb(&args)
    }

    /// After the product's own verbs the plain directory becomes what the mounted one is.
    fn follow(&mut self) {
        let source = self.source.join(format!("case{}", self.case));
        run(Command::new("rm").arg("-rf").arg(&self.plain)).ok();
        run(Command::new("cp").arg("-a").arg(source).arg(&self.plain)).ok();
        self.remember();
    }

    fn check(&self, when: &str) -> Result<(), String> {
        let (plain, mounted) = (shape(&self.plain), shape(&self.dir));
        if plain != mounted {
            return Err(format!("{when}: {mounted:#?}\nis not {plain:#?}"));
        }
        let mut found = texts(&self.dir);
        found.extend(texts(&self.source.join(".trashfs/ops")));
        let lost: Vec<_> = self.texts.difference(&found).collect();
        if lost.is_empty() {
            Ok(())
        } else {
            Err(format!("{when}: lost {lost:?}"))
        }
    }
}

fn apply(step: &Step, dir: &Path, text: &str) -> io::Result<()> {
    let at = |p: &usize| dir.join(PATHS[*p]);
    match step {
        Step::Write(p) => std::fs::write(at(p), text),
        Step::Append(p) => {
            let mut file = std::fs::OpenOptions::new().append(true).open(at(p))?;
            io::Write::write_all(&mut file, text.as_bytes())
        }
        Step::Truncate(p, n) => {
            let file = std::fs::OpenOptions::new().write(true).open(at(p))?;
            file.set_len(u64::from(*n))
        }
        Step::Make(p) => std::fs::create_dir(at(p)),
        Step::Rename(p, q) => std::fs::rename(at(p), at(q)),
        Step::Exchange(p, q) => Ok(rustix::fs::renameat_with(
            CWD,
            at(p),
            CWD,
            at(q),
            RenameFlags::EXCHANGE,
        )?),
        Step::Link(p, q) => std::fs::hard_link(at(p), at(q)),
        Step::Symlink(p) => std::os::unix::fs::symlink("a", at(p)),
        Step::Remove(p) => {
            let is_dir = std::fs::symlink_metadata(at(p))?.is_dir();
            command(if is_dir { "rmdir" } else { "unlink" }, &[], &at(p))
        }
        Step::RemoveTree(p) => command("rm", &["-r"], &at(p)),
        Step::Mode(p, m) => {
            if std::fs::symlink_metadata(at(p))?.is_symlink() {
                return Ok(());
            }
            std::fs::set_permissions(at(p), PermissionsExt::from_mode(u32::from(*m) | 0o700))
        }
    }
}

/// A program of its own in the same operation: what a process makes and removes itself within
/// seconds is kept in another way. Its error is only that there is one.
fn command(program: &str, args: &[&str], path: &Path) -> io::Result<()> {
    let output = Command::new(program).args(args).arg(path).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
}

fn visit(dir: &Path, each: &mut dyn FnMut(&Path, &std::fs::Metadata)) {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|i| i.unwrap().path())
        .collect();
    names.sort();
    for path in names {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        each(&path, &meta);
        if meta.is_dir() {
            visit(&path, each);
        }
    }
}

fn shape(dir: &Path) -> Shape {
    let mut first: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut found = Shape::new();
    visit(dir, &mut |path, meta| {
        let path_below = path.strip_prefix(dir).unwrap().to_owned();
        let content = if meta.is_file() {
            String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
        } else if meta.is_symlink() {
            std::fs::read_link(path)
                .unwrap()
                .to_string_lossy()
                .into_owned()
        } else {
            String::new()
        };
        let same = first
            .entry(meta.ino())
            .or_insert_with(|| path_below.clone())
            .clone();
        found.insert(path_below, (meta.mode(), content, same));
    });
    found
}

/// The texts of all regular files that are not empty.
fn texts(dir: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    visit(dir, &mut |path, meta| {
        if meta.is_file() && meta.len() > 0 {
            found.insert(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
        }
    });
    found
}
