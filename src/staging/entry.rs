//! The directory of one entry.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::beneath;
use crate::ids::EntryId;
use crate::record::{OP_FORMAT, OpRecord};
use crate::staging::{Area, Exceptions, Tree, TreeName};
use crate::walk::names_in;

/// Who and when.
pub const OP_RECORD: &str = "op.json";
/// What, once sealed.
pub const SUMMARY: &str = "summary.json";
/// Members with their hashes.
pub const MANIFEST: &str = "manifest.jsonl";
/// Hold and retention as a person set them.
pub const SETTINGS: &str = "settings.json";

/// One entry's directories: in the main area, and in that of each other filesystem that it
/// touched.
#[derive(Debug)]
pub struct EntryDir {
    /// Which.
    pub id: EntryId,
    parts: Vec<(Arc<Area>, OwnedFd)>,
}

impl EntryDir {
    pub(crate) fn new(id: EntryId, parts: Vec<(Arc<Area>, OwnedFd)>) -> Self {
        Self { id, parts }
    }

    /// Each area's part: the area and the entry's directory there (`O_PATH`). The first is
    /// where the records lie.
    pub fn parts(&self) -> &[(Arc<Area>, OwnedFd)] {
        &self.parts
    }

    /// The directory that holds the records.
    pub fn records(&self) -> &OwnedFd {
        &self.parts[0].1
    }

    /// `op.json`, from whichever part has a readable one. `Ok(None)` when it is missing or
    /// damaged in all: that costs the attribution, not the bytes.
    ///
    /// # Errors
    /// Those of reading a file that exists.
    pub fn op_record(&self) -> io::Result<Option<OpRecord>> {
        for (_, dir) in &self.parts {
            if let Some(text) = damaged_is_none(read_record(dir, OP_RECORD))?
                && let Ok(record) = serde_json::from_slice::<OpRecord>(&text)
                && record.format <= OP_FORMAT
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Names in the entry's directories that are neither records nor trees.
    ///
    /// # Errors
    /// Those of reading directories.
    pub fn foreign(&self) -> io::Result<Vec<PathBuf>> {
        let mut foreign = Vec::new();
        for (area, dir) in &self.parts {
            for (name, kind) in names_in(dir.as_fd())? {
                let text = name.to_str().unwrap_or_default();
                let ours = if kind == rustix::fs::FileType::Directory {
                    text.parse::<TreeName>().is_ok()
                } else {
                    [".json", ".jsonl", ".new"]
                        .iter()
                        .any(|end| text.ends_with(end))
                };
                if !ours {
                    let ops = area.prefix.join(crate::staging::STAGING_NAME).join("ops");
                    foreign.push(ops.join(self.id.as_str()).join(name));
                }
            }
        }
        Ok(foreign)
    }

    /// The directories that look like containers and are none.
    ///
    /// # Errors
    /// Those of reading a file that exists.
    pub fn exceptions(&self) -> io::Result<Exceptions> {
        Exceptions::read(self)
    }

    /// All trees, by cause, retention and slot.
    ///
    /// # Errors
    /// Those of opening and reading directories.
    pub fn trees(&self) -> io::Result<Vec<Tree>> {
        let mut trees = Vec::new();
        for (area, dir) in &self.parts {
            for (file_name, _) in names_in(dir.as_fd())? {
                let Some(name) = file_name
                    .to_str()
                    .and_then(|text| text.parse::<TreeName>().ok())
                else {
                    continue;
                };
                let fd = match beneath::open_dir_at(dir, &file_name) {
                    // No tree, whatever its name says: it is reported as foreign.
                    Err(Errno::NOTDIR | Errno::LOOP) => continue,
                    other => other?,
                };
                let place = Path::new(crate::staging::STAGING_NAME)
                    .join("ops")
                    .join(self.id.as_str())
                    .join(&file_name);
                trees.push(Tree {
                    name,
                    fd,
                    area: area.clone(),
                    place,
                });
            }
        }
        trees.sort_by(|a, b| {
            a.name
                .cmp(&b.name)
                .then_with(|| a.area.prefix.cmp(&b.area.prefix))
        });
        Ok(trees)
    }
}

/// More than any record of ours has.
const RECORD_MAX_BYTES: u64 = 256 << 20;

/// The content of a small record; `None` when there is none.
///
/// # Errors
/// Those of open(2) and read(2), and for what is no regular file or too large to be a record.
pub fn read_record(dir: &OwnedFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = open_record(dir, name)? else {
        return Ok(None);
    };
    if file.metadata()?.len() > RECORD_MAX_BYTES {
        return Err(no_record(name, "too large for a record"));
    }
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, RECORD_MAX_BYTES), &mut text)?;
    Ok(Some(text))
}

/// Opens a record; `None` when there is none. Never waits, as opening a FIFO would.
///
/// # Errors
/// Those of open(2), and `InvalidData` for what is no regular file.
pub(crate) fn open_record(dir: &OwnedFd, name: &str) -> io::Result<Option<std::fs::File>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => std::fs::File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(no_record(name, "a symbolic link")),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() {
        return Ok(Some(file));
    }
    Err(no_record(name, "no regular file"))
}

fn no_record(name: &str, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} is {what}"))
}

/// What cannot be a record counts as a damaged one does: as none.
pub(crate) fn damaged_is_none<T>(read: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
        other => other,
    }
}

/// Writes a record anew: a synced temporary file, then one rename, then the directory synced.
///
/// # Errors
/// Those of the system calls; the old record then still stands.
pub fn write_record(dir: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let fresh = format!(".{name}.new");
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, fresh.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = std::fs::File::from(fd);
    io::Write::write_all(&mut file, content)?;
    file.sync_data()?;
    crate::relocate::replace_record(dir, fresh.as_str(), name)?;
    rustix::fs::fsync(beneath::open_dir_readable(dir, c".")?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_record_is_an_error_and_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let dir: OwnedFd = std::fs::File::open(temp.path()).unwrap().into();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&dir, "fifo", rustix::fs::FileType::Fifo, mode, 0).unwrap();
        std::fs::create_dir(temp.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", temp.path().join("link")).unwrap();
        let huge = std::fs::File::create(temp.path().join("huge")).unwrap();
        huge.set_len(20 << 30).unwrap();
        for name in ["fifo", "directory", "link", "huge"] {
            let read = read_record(&dir, name);
            assert!(read.is_err(), "{name}");
            assert_eq!(damaged_is_none(read).unwrap(), None, "{name}");
        }
        assert!(read_record(&dir, "none").unwrap().is_none());
    }
}
