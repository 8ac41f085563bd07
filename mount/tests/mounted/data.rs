//! Content: reading, writing, mapping, locking, space.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::time::Duration;

use rustix::fs::FallocateFlags;

use super::*;

#[test]
fn open_files_outlive_their_names() {
    both_ways(|m| {
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(m.path("f"))
            .unwrap();
        file.write_all(b"before").unwrap();
        m.shell("rm f");
        file.write_all(b" after").unwrap();
        file.rewind().unwrap();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "before after");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.set_len(3).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3);
    });
}

#[test]
fn holes_are_kept_and_found() {
    both_ways(|m| {
        let file = File::create_new(m.path("f")).unwrap();
        file.write_all_at(b"end", 1 << 20).unwrap();
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
        let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
        assert_eq!(data, 1 << 20);
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 19);
    });
}

#[test]
fn files_are_copied_inside_the_kernel() {
    both_ways(|m| {
        fs::write(m.path("a"), vec![7; 300_000]).unwrap();
        let (from, to) = (File::open(m.path("a")), File::create(m.path("b")));
        let (from, to) = (from.unwrap(), to.unwrap());
        let mut copied = 0;
        while copied < 300_000 {
            let n = rustix::fs::copy_file_range(&from, None, &to, None, 300_000 - copied).unwrap();
            assert!(n > 0);
            copied += n;
        }
        assert_eq!(fs::read(m.path("b")).unwrap(), vec![7; 300_000]);
    });
}

#[test]
fn appenders_do_not_overwrite_one_another() {
    both_ways(|m| {
        m.shell("for i in 1 2 3 4; do (for j in $(seq 200); do echo line-$i-$j >> f; done) & done; wait");
        assert_eq!(m.shell("sort -u f | wc -l").trim(), "800");
    });
}

#[test]
fn a_time_changed_through_a_mapping_is_seen() {
    both_ways(|m| {
        fs::write(m.path("f"), vec![0; 8192]).unwrap();
        let before = m.path("f").metadata().unwrap().mtime_nsec();
        std::thread::sleep(Duration::from_millis(20));
        m.shell(
            "python3 -c \"
import mmap
with open('f','r+b') as f:
    m = mmap.mmap(f.fileno(), 0); m[0:4] = b'mmap'; m.flush(); m.close()
\"",
        );
        assert_ne!(m.path("f").metadata().unwrap().mtime_nsec(), before);
        assert_eq!(&fs::read(m.below("f")).unwrap()[..4], b"mmap");
    });
}

#[test]
fn locks_hold_between_processes() {
    both_ways(|m| {
        m.shell(
            "exec 9> lock; flock -n 9
             not 'flock -n lock true'
             exec 9>&-
             flock -n lock true",
        );
    });
}

#[test]
fn sqlite_works_in_both_journal_modes() {
    both_ways(|m| {
        m.shell(
            "python3 -c \"
import sqlite3
for mode in ('wal', 'delete'):
    c = sqlite3.connect('db'); c.execute('pragma journal_mode=' + mode)
    c.execute('create table if not exists t(a)')
    for i in range(50): c.execute('insert into t values(?)', (i,)); c.commit()
    d = sqlite3.connect('db')
    assert d.execute('pragma integrity_check').fetchone() == ('ok',)
    d.close(); c.close()
c = sqlite3.connect('db'); assert c.execute('select count(*) from t').fetchone() == (100,)
\"",
        );
    });
}

#[test]
fn what_cannot_be_executed_while_written_can_afterwards() {
    both_ways(|m| {
        m.shell("cp /bin/true t; chmod 755 t; ./t; rm t; cp /bin/false t; not ./t");
    });
}

#[test]
fn direct_and_synchronous_writes_arrive() {
    both_ways(|m| {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .custom_flags(libc::O_SYNC | libc::O_APPEND)
            .open(m.path("f"))
            .unwrap();
        file.write_all(b"synced").unwrap();
        assert_eq!(fs::read(m.below("f")).unwrap(), b"synced");
        m.shell("dd if=/dev/zero of=d bs=4096 count=16 oflag=direct; test $(stat -c %s d) = 65536");
    });
}

#[test]
fn files_and_directories_reach_the_disk() {
    both_ways(|m| {
        fs::write(m.path("f"), "x").unwrap();
        let file = File::open(m.path("f")).unwrap();
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        File::open(m.path("")).unwrap().sync_all().unwrap();
    });
}

#[test]
fn positions_past_the_end_are_no_data() {
    let m = Mounted::plain(true);
    fs::write(m.path("f"), "x").unwrap();
    let mut file = File::open(m.path("f")).unwrap();
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 1);
    let past = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5));
    assert_eq!(past.unwrap_err(), rustix::io::Errno::NXIO);
}
