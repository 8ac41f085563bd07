//! The register of areas on other filesystems inside the workspace, in the main area: by it they
//! are found again at the next start.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use crate::beneath;
use crate::record::Bytes;
use crate::staging::{Area, AreaError, Staging, read_record, write_record};

/// Workspace-relative paths: a JSON array.
pub const AREAS_RECORD: &str = "areas.json";

/// An area that is registered and could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the staging area of the filesystem on {prefix}: {error}", prefix = .prefix.display())]
pub struct Unreachable {
    /// Where in the workspace it is mounted, or was.
    pub prefix: PathBuf,
    /// Why.
    pub error: AreaError,
}

impl Staging {
    fn registered(&self) -> io::Result<BTreeSet<PathBuf>> {
        let text = read_record(&self.main().staging, AREAS_RECORD)?;
        let prefixes: Vec<Bytes> = text
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        Ok(prefixes.into_iter().map(|p| PathBuf::from(p.0)).collect())
    }

    /// Notes every area that is open, beside those noted before: a filesystem that is not
    /// mounted just now is not forgotten.
    ///
    /// # Errors
    /// Those of reading and writing the record.
    pub fn register_areas(&self) -> io::Result<()> {
        let mut prefixes = self.registered()?;
        let open = self.areas();
        prefixes.extend(open.iter().skip(1).map(|area| area.prefix.clone()));
        let prefixes: Vec<Bytes> = prefixes.into_iter().map(Bytes::from).collect();
        let text = serde_json::to_vec(&prefixes)?;
        write_record(&self.main().staging, AREAS_RECORD, &text)
    }

    /// Opens every registered area that is not open yet; gives back those that can't be.
    ///
    /// # Errors
    /// Those of reading the register.
    pub fn reopen_areas(&self) -> io::Result<Vec<Unreachable>> {
        let open: BTreeSet<PathBuf> = self.areas().iter().map(|a| a.prefix.clone()).collect();
        let mut unreachable = Vec::new();
        for prefix in self.registered()?.difference(&open) {
            match self.reopen(prefix) {
                Ok(area) => drop(self.add(area)),
                Err(error) => unreachable.push(Unreachable {
                    prefix: prefix.clone(),
                    error,
                }),
            }
        }
        Ok(unreachable)
    }

    fn reopen(&self, prefix: &Path) -> Result<Area, AreaError> {
        let main = self.main();
        let root = beneath::open_dir(main.root.as_fd(), prefix).map_err(|error| AreaError::Io {
            what: "opening the directory",
            error: error.into(),
        })?;
        let area = Area::open(root, prefix.to_owned(), None)?;
        if area.workspace == main.workspace {
            Ok(area)
        } else {
            Err(AreaError::OtherWorkspace(area.workspace.clone()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn area(f: &Fixture, prefix: &str) -> Result<Area, AreaError> {
        std::fs::create_dir_all(f.path(prefix)).unwrap();
        let root = std::fs::File::open(f.path(prefix)).unwrap().into();
        Area::open(root, prefix.into(), Some(&f.ws.id))
    }

    #[test]
    fn registered_areas_are_opened_again_and_unreachable_ones_not_forgotten() {
        let f = Fixture::new();
        f.ws.staging.add(area(&f, "mnt/a").unwrap());
        f.ws.staging.register_areas().unwrap();
        f.ws.staging.add(area(&f, "mnt/gone").unwrap());
        f.ws.staging.register_areas().unwrap();
        let f = f.reopened();
        let root = std::fs::File::open(f.path("mnt")).unwrap();
        crate::relocate::move_new(&root, "gone", &root, "elsewhere").unwrap();
        let unreachable = f.ws.staging.reopen_areas().unwrap();
        assert_eq!(unreachable.len(), 1);
        assert_eq!(unreachable[0].prefix, Path::new("mnt/gone"));
        assert_eq!(f.ws.staging.areas().len(), 2);
        f.ws.staging.register_areas().unwrap();
        assert_eq!(f.ws.staging.registered().unwrap().len(), 2);
    }
}
