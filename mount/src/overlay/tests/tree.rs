//! Large, deep and changing trees.

use super::*;

#[test]
fn many_directories_do_with_few_descriptors() {
    let fixture = Fixture::with_dirs(8);
    let dirs: Vec<_> = (0..300)
        .map(|i| fixture.mkdir(ROOT, &format!("d{i}")))
        .collect();
    let files: Vec<_> = dirs
        .iter()
        .map(|&dir| {
            let (file, handle) = fixture.create(dir, "f");
            fixture.overlay.release(handle);
            file.node
        })
        .collect();
    for &file in &files {
        assert!(fixture.overlay.getattr(file, None).is_ok());
    }
}

#[test]
fn paths_longer_than_the_kernel_takes_are_reached_name_by_name() {
    let fixture = Fixture::with_dirs(8);
    let name = "a-name-of-some-length-".repeat(8);
    let mut dir = ROOT;
    for _ in 0..60 {
        dir = fixture.mkdir(dir, &name);
    }
    let (file, handle) = fixture.create(dir, "f");
    fixture.overlay.release(handle);
    for i in 0..20 {
        fixture.mkdir(ROOT, &format!("other{i}"));
    }
    assert!(fixture.overlay.getattr(file.node, None).is_ok());
    let path = fixture.overlay.path_of(dir);
    assert!(crate::PathSource::path(&path).unwrap().as_os_str().len() > libc::PATH_MAX as usize);
}

#[test]
fn what_is_under_a_moved_directory_is_found_again() {
    let fixture = Fixture::with_dirs(8);
    let dir = fixture.mkdir(ROOT, "d");
    let below = fixture.mkdir(dir, "below");
    let (file, handle) = fixture.create(below, "f");
    fixture.overlay.release(handle);
    let epoch = fixture.overlay.epoch();
    fixture.rename("d", "e", 0).unwrap();
    assert_ne!(fixture.overlay.epoch(), epoch);
    for i in 0..20 {
        fixture.mkdir(ROOT, &format!("other{i}"));
    }
    assert!(fixture.overlay.getattr(file.node, None).is_ok());
    let path = crate::PathSource::path(&fixture.overlay.path_of(below)).unwrap();
    assert_eq!(path, Path::new("e/below"));
}

#[test]
fn a_listing_goes_on_while_its_entries_are_removed() {
    let fixture = Fixture::new();
    for i in 0..3000 {
        fixture.write(format!("file-{i}"), "");
    }
    let handle = fixture.overlay.opendir(ROOT).unwrap();
    let (mut offset, mut removed) = (0, 0);
    loop {
        let mut batch = Vec::new();
        fixture
            .overlay
            .readdirplus(handle, offset, |entry, _| {
                if batch.len() == 100 {
                    return true;
                }
                batch.push((entry.name.to_owned(), entry.next_offset));
                false
            })
            .unwrap();
        let Some((_, next)) = batch.last() else { break };
        offset = *next;
        for (name, _) in batch {
            if name != "." && name != ".." {
                fixture.overlay.unlink(ROOT_USER, ROOT, &name).unwrap();
                removed += 1;
            }
        }
    }
    assert_eq!(removed, 3000);
}

#[test]
fn a_listing_can_go_back() {
    let fixture = Fixture::new();
    for i in 0..50 {
        fixture.write(format!("file-{i}"), "");
    }
    let handle = fixture.overlay.opendir(ROOT).unwrap();
    let read = |from| {
        let mut entries = Vec::new();
        fixture
            .overlay
            .readdir(handle, from, |entry| {
                entries.push((entry.name.to_owned(), entry.next_offset));
                false
            })
            .unwrap();
        entries
    };
    let all = read(0);
    assert_eq!(read(all[20].1), all[21..]);
    assert_eq!(read(all[3].1), all[4..]);
    assert_eq!(read(0), all);
}

#[test]
fn entries_that_are_not_taken_are_not_referenced() {
    let fixture = Fixture::new();
    fixture.write("a", "one");
    let handle = fixture.overlay.opendir(ROOT).unwrap();
    let mut node = 0;
    fixture
        .overlay
        .readdirplus(handle, 0, |_, found| {
            node = found.map_or(node, |f| f.node);
            found.is_some()
        })
        .unwrap();
    assert_eq!(
        fixture.overlay.getattr(node, None).unwrap_err(),
        Errno::STALE
    );
}

#[test]
fn a_path_is_turned_into_a_number() {
    let fixture = Fixture::new();
    let dir = fixture.mkdir(ROOT, "d");
    let below = fixture.mkdir(dir, "below");
    let at = |path| fixture.overlay.node_at(Path::new(path));
    assert_eq!(at(""), Ok(ROOT));
    assert_eq!(at("d/below"), Ok(below));
    assert_eq!(at("d/none"), Err(Errno::NOENT));
}
