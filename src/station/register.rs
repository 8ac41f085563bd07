//! The register: a directory per workspace in the station's state directory, with its record,
//! its journal and its daemon's log. While a workspace is mounted its record lies in the
//! runtime directory too, so that it is found even when it is the state directory that was
//! removed.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::clock::UnixNanos;
use crate::failure::Failure;
use crate::ids::WorkspaceId;
use crate::record::Bytes;
use crate::staging::{read_record, write_record};
use crate::station::unreachable;
use crate::{beneath, discard, surroundings, walk};

const RECORD: &str = "workspace.json";
const RECORD_FORMAT: u32 = 1;

/// What a registered workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A directory that is mounted, or was.
    Mounted,
    /// The staging area of a filesystem for what `trash put` removes outside of any mount. Its
    /// entries' paths are relative to `path`, its area lies below `source`.
    Put,
}

/// The mount of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MountRecord {
    /// The daemon's process id.
    pub pid: u32,
    /// The mount's number.
    pub mount_id: u64,
    /// Since when.
    pub since: UnixNanos,
}

/// A workspace as it is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Registered {
    /// Version of this record.
    pub format: u32,
    /// Its id, as in its staging area.
    pub id: WorkspaceId,
    /// What it is.
    pub kind: Kind,
    /// Where users see it, canonical.
    pub path: Bytes,
    /// The backing directory, canonical: the same, unless `--source` was given.
    pub source: Bytes,
    /// Its mount, as far as a daemon could say goodbye.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount: Option<MountRecord>,
}

impl Registered {
    /// A new one, not mounted.
    pub fn new(id: WorkspaceId, kind: Kind, path: &Path, source: &Path) -> Self {
        Self {
            format: RECORD_FORMAT,
            id,
            kind,
            path: path.into(),
            source: source.into(),
            mount: None,
        }
    }
}

/// The station's register of workspaces.
#[derive(Debug)]
pub struct Register {
    dir: OwnedFd,
    path: PathBuf,
}

impl Register {
    /// Opens it, making it first where there is none.
    ///
    /// # Errors
    /// When the state directory can't be made or is not the caller's own.
    pub fn open() -> Result<Self, Failure> {
        owner_only_dir(&surroundings::state_dir())?;
        let path = surroundings::state_dir().join("workspaces");
        let dir = owner_only_dir(&path)?;
        Ok(Self { dir, path })
    }

    /// Opens it, if there is one.
    ///
    /// # Errors
    /// When it can't be opened.
    pub fn existing() -> Result<Option<Self>, Failure> {
        let path = surroundings::state_dir().join("workspaces");
        match path.try_exists() {
            Ok(true) => Self::open().map(Some),
            Ok(false) => Ok(None),
            Err(e) => Err(unreachable("looking at", &path, &e)),
        }
    }

    /// Every workspace in it; a record that is damaged is left out and logged.
    ///
    /// # Errors
    /// When the register can't be listed.
    pub fn all(&self) -> Result<Vec<Registered>, Failure> {
        let names = walk::names_in(self.dir.as_fd())
            .map_err(|e| Failure::io(format!("listing {}", self.path.display()), &e))?;
        let ids = names
            .iter()
            .filter_map(|(name, _)| name.to_str()?.parse().ok());
        let mut found: Vec<Registered> = ids
            .filter_map(|id| match self.get(&id) {
                Ok(record) => record,
                Err(failure) => {
                    tracing::warn!(workspace = %id, "{}", failure.what);
                    None
                }
            })
            .collect();
        found.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.id.cmp(&b.id)));
        Ok(found)
    }

    /// One of them.
    ///
    /// # Errors
    /// When its record can't be read or is damaged.
    pub fn get(&self, id: &WorkspaceId) -> Result<Option<Registered>, Failure> {
        let dir = match beneath::open_dir_at(&self.dir, OsStr::new(id.as_str())) {
            Ok(dir) => dir,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(e) => return Err(self.failed("opening", id, &e.into())),
        };
        let text = read_record(&dir, RECORD).map_err(|e| self.failed("reading", id, &e))?;
        text.map(|text| parse(&text).map_err(|e| self.failed("reading", id, &e)))
            .transpose()
    }

    /// Enters a workspace, or what is new about it.
    ///
    /// # Errors
    /// When the record can't be written.
    pub fn put(&self, record: &Registered) -> Result<(), Failure> {
        let dir = self.dir_of(&record.id)?;
        write(&dir, RECORD, record).map_err(|e| self.failed("writing", &record.id, &e))
    }

    /// The workspace's directory, made where it is missing: for its journal and log.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn dir_of(&self, id: &WorkspaceId) -> Result<OwnedFd, Failure> {
        match rustix::fs::mkdirat(&self.dir, id.as_str(), Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(self.failed("making", id, &e.into())),
        }
        beneath::open_dir_at(&self.dir, OsStr::new(id.as_str()))
            .map_err(|e| self.failed("opening", id, &e.into()))
    }

    /// Where that directory lies, for messages.
    pub fn path_of(&self, id: &WorkspaceId) -> PathBuf {
        self.path.join(id.as_str())
    }

    fn failed(&self, doing: &str, id: &WorkspaceId, error: &io::Error) -> Failure {
        let path = self.path_of(id).join(RECORD);
        Failure::io(format!("{doing} {}", path.display()), error)
    }
}

fn parse(text: &[u8]) -> io::Result<Registered> {
    let record: Registered = serde_json::from_slice(text)?;
    if record.format > RECORD_FORMAT {
        return Err(io::Error::other("written by a newer version"));
    }
    Ok(record)
}

/// Writes nothing where nothing has changed: that works on a full disk, too.
fn write(dir: &OwnedFd, name: &str, record: &Registered) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    match read_record(dir, name)? {
        Some(known) if known == text => Ok(()),
        _ => write_record(dir, name, &text),
    }
}

/// Where sockets and the records of mounted workspaces lie. Nobody else may have made it.
#[derive(Debug)]
pub(crate) struct RuntimeDir {
    dir: OwnedFd,
    /// Where it is.
    pub(crate) path: PathBuf,
}

impl RuntimeDir {
    /// Opens it, making it first.
    pub(crate) fn open() -> Result<Self, Failure> {
        let path = surroundings::runtime_dir();
        let dir = owner_only_dir(&path)?;
        Ok(Self { dir, path })
    }

    /// Of which workspaces there are records.
    pub(crate) fn records(&self) -> Vec<Registered> {
        let names = walk::names_in(self.dir.as_fd()).unwrap_or_default();
        let records = names.iter().filter(|(name, _)| {
            let name = Path::new(name);
            name.extension() == Some(OsStr::new("json"))
        });
        records
            .filter_map(|(name, _)| read_record(&self.dir, name.to_str()?).ok()?)
            .filter_map(|text| parse(&text).ok())
            .collect()
    }

    /// Leaves a workspace's record here while it is mounted.
    pub(crate) fn put(&self, record: &Registered) -> Result<(), Failure> {
        let name = format!("{}.json", record.id);
        write(&self.dir, &name, record)
            .map_err(|e| Failure::io(format!("writing {}", self.path.join(name).display()), &e))
    }

    /// Takes away what a mounted workspace left here.
    pub(crate) fn clear(&self, id: &WorkspaceId) -> io::Result<()> {
        for name in [format!("{id}.json"), format!("{id}.sock")] {
            match discard::file(&self.dir, name.as_str()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The socket of a workspace.
    pub(crate) fn socket_path(&self, id: &WorkspaceId) -> PathBuf {
        self.path.join(format!("{id}.sock"))
    }

    /// The same as a path that holds while the directory is moved or mounted over, and that is
    /// short enough for a socket's address.
    pub(crate) fn socket_path_by_fd(&self, id: &WorkspaceId) -> PathBuf {
        use std::os::fd::AsRawFd;
        PathBuf::from(format!("/proc/self/fd/{}/{id}.sock", self.dir.as_raw_fd()))
    }

    /// The directory itself.
    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.dir
    }
}

/// Opens a directory of the product's own that only its owner may enter, making it (and those
/// above it) where it is missing. A symbolic link or somebody else's directory is refused.
pub(crate) fn owner_only_dir(path: &Path) -> Result<OwnedFd, Failure> {
    let failed = |doing: &str, e: io::Error| unreachable(doing, path, &e);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|e| failed("making", e))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())
        .map_err(|e| failed("opening", e.into()))?;
    let meta = std::fs::File::from(dir.try_clone().map_err(|e| failed("opening", e))?)
        .metadata()
        .map_err(|e| failed("looking at", e))?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let what = format!("{} belongs to another user", path.display());
        return Err(Failure::refused("unsafe-directory", what)
            .state("it is not trusted; nothing was changed")
            .next("export XDG_RUNTIME_DIR=DIR, a directory of your own, if it lies in /tmp"));
    }
    if meta.mode() & 0o022 != 0 {
        let what = format!("others may write to {}", path.display());
        return Err(Failure::refused("unsafe-directory", what)
            .state("it is not trusted; nothing was changed")
            .next(format!("chmod 700 {}", path.display())));
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(path: &Path) -> Register {
        Register {
            dir: owner_only_dir(path).unwrap(),
            path: path.to_owned(),
        }
    }

    #[test]
    fn what_was_entered_is_found_and_damage_is_left_out() {
        let scratch = tempfile::tempdir().unwrap();
        let register = register(scratch.path());
        let id = WorkspaceId::random();
        let record = Registered::new(id.clone(), Kind::Mounted, Path::new("/w"), Path::new("/w"));
        assert_eq!(register.get(&id).unwrap(), None);
        register.put(&record).unwrap();
        let damaged = WorkspaceId::random();
        register.dir_of(&damaged).unwrap();
        std::fs::write(register.path_of(&damaged).join(RECORD), "{").unwrap();
        assert_eq!(register.all().unwrap(), [record]);
        assert!(register.get(&damaged).is_err());
    }

    #[test]
    fn a_directory_of_doubtful_ownership_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let scratch = tempfile::tempdir().unwrap();
        let open = scratch.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(owner_only_dir(&open).unwrap_err().code, "unsafe-directory");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(scratch.path(), &link).unwrap();
        assert!(owner_only_dir(&link).is_err());
    }
}
