//! Names, attributes, permissions, listings.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::*;

#[test]
fn everyday_work_goes_through() {
    both_ways(|m| {
        m.shell(
            "mkdir -p a/b; echo one > a/b/f; cp a/b/f a/g; ln a/g a/h; ln -s b/f a/s
             mv a/b a/c; cat a/g a/h; test ! -e a/s; rm a/c/f; rmdir a/c; rm -r a; test ! -e a",
        );
    });
}

#[test]
fn git_works() {
    both_ways(|m| {
        m.shell(
            "git init -q r; cd r; for i in 1 2 3 4 5; do mkdir d$i; echo $i > d$i/f; done
             git config user.name a; git config user.email b; git add .; git commit -qm one
             git rm -rq d1; git commit -qm two; git checkout -q HEAD~1; test -f d1/f
             git checkout -q -; test ! -e d1; git gc -q; git fsck --strict
             test -z \"$(git status --porcelain)\"",
        );
    });
}

#[test]
fn numbers_are_those_of_the_backing() {
    let m = Mounted::plain(true);
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), "x").unwrap();
    for name in ["", "d", "d/f"] {
        let (above, below) = (m.path(name).metadata(), m.below(name).metadata());
        assert_eq!(above.unwrap().ino(), below.unwrap().ino(), "{name:?}");
    }
}

#[test]
fn temporary_files_without_names_are_said_to_be_unsupported() {
    let m = Mounted::plain(true);
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let opened = rustix::fs::open(m.path(""), flags, Mode::from_raw_mode(0o600));
    assert_eq!(opened.unwrap_err(), Errno::OPNOTSUPP);
}

#[test]
fn names_of_255_bytes_pass_and_of_256_do_not() {
    let m = Mounted::plain(true);
    let long = "n".repeat(256);
    let refused = fs::write(m.path(&long), "x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidFilename);
    fs::write(m.path(&long[1..]), "x").unwrap();
}

#[test]
fn trees_deeper_than_path_max_are_made_and_removed() {
    let m = Mounted::plain(true);
    m.shell(
        "n=$(printf 'x%.0s' $(seq 200)); i=0
         while [ $i -lt 40 ]; do mkdir $n; cd -P $n; i=$((i+1)); done 2>/dev/null || true
         echo deep > f; cat f",
    );
    m.shell("rm -rf x*; test -z \"$(ls)\"");
}

#[test]
fn rename_flags_are_obeyed() {
    let m = Mounted::plain(true);
    fs::write(m.path("a"), "a").unwrap();
    fs::write(m.path("b"), "b").unwrap();
    let rename = |from: &str, to: &str, flags| {
        #[expect(clippy::disallowed_methods, reason = "what is tested")]
        rustix::fs::renameat_with(CWD, m.path(from), CWD, m.path(to), flags)
    };
    assert_eq!(rename("a", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
    rename("a", "b", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("a")).unwrap(), b"b");
    rename("a", "c", RenameFlags::NOREPLACE).unwrap();
    assert!(!m.path("a").exists());
}

#[test]
fn other_users_own_what_they_make_and_keep_to_their_permissions() {
    both_ways(|m| {
        m.shell_as(4321, "umask 027; echo x > f; mkdir d; ln -s f l; mkfifo p");
        for name in ["f", "d", "l", "p"] {
            let meta = m.below(name).symlink_metadata().unwrap();
            assert_eq!((meta.uid(), meta.gid()), (4321, 4321), "{name}");
        }
        assert_eq!(m.below("f").metadata().unwrap().mode() & 0o7777, 0o640);
        m.shell("mkdir -m 700 private; echo s > private/secret; echo o > mine; chmod 644 mine");
        m.shell_as(
            4321,
            "not 'ls private'; not 'cat private/secret'
             cat mine; not 'echo x > mine'; not 'chmod 777 mine'",
        );
    });
}

#[test]
fn a_directory_that_only_a_supplementary_group_may_write_to() {
    let m = Mounted::plain(true);
    m.shell("mkdir shared; chgrp 777 shared; chmod 2775 shared");
    let status = Command::new("setpriv")
        .args(["--reuid=4321", "--regid=4321", "--groups=777"])
        .args(["sh", "-euc", "echo x > shared/f; mkdir shared/d"])
        .current_dir(m.path(""))
        .status()
        .unwrap();
    assert!(status.success());
    let made = m.below("shared/f").metadata().unwrap();
    assert_eq!((made.uid(), made.gid()), (4321, 777));
    assert_ne!(m.below("shared/d").metadata().unwrap().mode() & 0o2000, 0);
}

#[test]
fn extended_attributes_pass() {
    let m = Mounted::plain(true);
    fs::write(m.path("f"), "x").unwrap();
    symlink("f", m.path("l")).unwrap();
    let (f, l) = (m.path("f"), m.path("l"));
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&f, "user.a", &[7; 3000], flags).unwrap();
    rustix::fs::lsetxattr(&l, "trusted.l", b"link", flags).unwrap();
    let mut buf = [0; 4000];
    assert_eq!(rustix::fs::getxattr(&f, "user.a", &mut buf), Ok(3000));
    assert_eq!(rustix::fs::lgetxattr(&l, "trusted.l", &mut buf), Ok(4));
    assert_eq!(
        rustix::fs::getxattr(&f, "user.none", &mut buf),
        Err(Errno::NODATA)
    );
    rustix::fs::removexattr(&f, "user.a").unwrap();
    assert_eq!(
        rustix::fs::getxattr(&f, "user.a", &mut buf),
        Err(Errno::NODATA)
    );
}

#[test]
fn a_large_directory_is_emptied_while_it_is_listed() {
    let m = Mounted::plain(true);
    fs::create_dir(m.path("d")).unwrap();
    for i in 0..20_000 {
        fs::write(m.below(format!("d/file-{i}")), "").unwrap();
    }
    m.shell("rm -rf d; test ! -e d");
}

#[test]
fn several_remove_one_tree_at_once() {
    both_ways(|m| {
        m.shell("for i in $(seq 40); do mkdir -p t/$i; for j in $(seq 20); do echo > t/$i/$j; done; done");
        m.shell("rm -rf t & rm -rf t & rm -rf t & rm -rf t & wait; rm -rf t; test ! -e t");
    });
}

#[test]
fn what_changed_below_is_seen_once_it_is_announced() {
    let m = Mounted::plain(true);
    fs::create_dir(m.path("d")).unwrap();
    assert!(!m.path("d/f").exists());
    assert_eq!(fs::read_dir(m.path("d")).unwrap().count(), 0);
    fs::write(m.below("d/f"), "back again").unwrap();
    m.view().name_changed(Path::new("d"), "f".as_ref());
    assert_eq!(fs::read(m.path("d/f")).unwrap(), b"back again");
    assert_eq!(fs::read_dir(m.path("d")).unwrap().count(), 1);
}

#[test]
fn set_id_bits_do_not_survive_other_peoples_writes() {
    both_ways(|m| {
        let change = [
            "echo x >> f",
            "echo x > f",
            "truncate -s 1 f",
            "fallocate -l 9 f",
        ];
        for script in change {
            fs::write(m.path("f"), "content").unwrap();
            fs::set_permissions(m.path("f"), fs::Permissions::from_mode(0o6777)).unwrap();
            m.shell_as(4321, script);
            let mode = m.path("f").metadata().unwrap().mode();
            assert_eq!(mode & 0o7777, 0o777, "{script}");
        }
    });
}

#[test]
fn a_removed_working_directory_is_still_one() {
    let m = Mounted::plain(true);
    m.shell("mkdir d; cd d; rmdir ../d; stat -L -c %h . ; not 'touch x'");
}

#[test]
fn links_to_links_are_links() {
    let m = Mounted::plain(true);
    fs::write(m.path("f"), "x").unwrap();
    symlink("f", m.path("l")).unwrap();
    rustix::fs::linkat(CWD, m.path("l"), CWD, m.path("k"), AtFlags::empty()).unwrap();
    assert_eq!(fs::read_link(m.path("k")).unwrap(), Path::new("f"));
    assert_eq!(m.path("l").symlink_metadata().unwrap().nlink(), 2);
}
