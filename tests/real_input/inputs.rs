//! What is removed: sources, a repository, packages, and everything awkward.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Answer, run, sh, skip, tree};

/// Sources of ten crates, as cargo unpacked them.
pub(crate) fn ten_crates(dir: &Path) {
    const LARGEST_BYTES: u64 = 4 << 20;
    std::fs::create_dir(dir).unwrap();
    let mut found: Vec<PathBuf> = Vec::new();
    for registry in std::fs::read_dir(cargo_home().join("registry/src")).unwrap() {
        let registry = registry.unwrap().path();
        found.extend(
            std::fs::read_dir(registry)
                .unwrap()
                .map(|e| e.unwrap().path()),
        );
    }
    found.sort();
    let moderate = |path: &&PathBuf| path.is_dir() && size_bytes(path) < LARGEST_BYTES;
    let chosen: Vec<_> = found.iter().rev().filter(moderate).take(10).collect();
    assert_eq!(
        chosen.len(),
        10,
        "cargo has unpacked the project's dependencies"
    );
    for source in chosen {
        run(Command::new("cp").arg("-a").arg(source).arg(dir)).ok();
    }
}

fn cargo_home() -> PathBuf {
    std::env::var_os("CARGO_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo"),
        PathBuf::from,
    )
}

fn size_bytes(dir: &Path) -> u64 {
    let answer = run(Command::new("du").args(["-sb"]).arg(dir)).ok();
    answer
        .out
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// A git repository with history, packed and loose objects, changes, and untracked files.
pub(crate) fn repository(dir: &Path) {
    std::fs::create_dir(dir).unwrap();
    tree::plain(&dir.join("src"), 300);
    sh(
        dir,
        "set -e
        git init -q .; git config user.name a; git config user.email a@b
        printf 'ignored/\\n*.log\\n' > .gitignore
        for i in 1 2 3 4 5; do
            echo change $i >> src/d0/f1; git add -A; git commit -qm \"commit $i\"
        done
        git gc -q; git tag v1; git branch side
        echo later >> src/d1/f101; git commit -qam later; git stash -q 2>/dev/null || true
        mkdir -p ignored untracked; echo precious > ignored/data.db; echo log > x.log
        echo work > untracked/new.rs; echo edited >> src/d2/f201; chmod 400 .git/index",
    )
    .ok();
}

/// The `node_modules` of a package with hundreds of dependencies; installed once a machine.
/// `None` only where the registry cannot be reached.
pub(crate) fn node_modules(dir: &Path) -> Option<()> {
    const VERSION: &str = "29.7.0";
    let cache = cache().join(format!("jest-{VERSION}"));
    if !cache.join("complete").exists() {
        std::fs::create_dir_all(&cache).unwrap();
        let install = format!(
            "npm init -y >/dev/null && \
             npm install --no-audit --no-fund --loglevel=error jest@{VERSION}"
        );
        let answer = sh(&cache, &install);
        if registry_is_out_of_reach(&answer) {
            skip("node_modules", &answer.err);
            return None;
        }
        answer.ok();
        std::fs::write(cache.join("complete"), "").unwrap();
    }
    std::fs::create_dir(dir).unwrap();
    for name in ["node_modules", "package.json", "package-lock.json"] {
        run(Command::new("cp").arg("-a").arg(cache.join(name)).arg(dir)).ok();
    }
    let packages = std::fs::read_dir(dir.join("node_modules")).unwrap().count();
    assert!(packages > 150, "{packages} packages are not hundreds");
    Some(())
}

/// The one reason to leave npm out.
pub(crate) fn registry_is_out_of_reach(answer: &Answer) -> bool {
    let unreachable = [
        "EAI_AGAIN",
        "ENOTFOUND",
        "ETIMEDOUT",
        "ECONNREFUSED",
        "ENETUNREACH",
    ];
    answer.code != 0 && unreachable.iter().any(|code| answer.err.contains(code))
}

fn cache() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .map_or_else(
            || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"),
            PathBuf::from,
        )
        .join("trashfs-tools")
}
