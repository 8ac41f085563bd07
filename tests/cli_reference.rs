//! The whole help of the command line, as one snapshot. After a wanted change:
//! `UPDATE_SNAPSHOTS=1 cargo test --test cli_reference`.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on ends; a variable asks for a new snapshot"
)]

use std::path::Path;
use std::process::Command;

fn help(words: &[String]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_trash"))
        .args(words)
        .arg("--help")
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Names under "Commands:" in a help text.
fn commands(help: &str) -> Vec<String> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect()
}

fn reference(words: &[String], into: &mut String) {
    let text = help(words);
    let title = ["trash"]
        .into_iter()
        .chain(words.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    into.push_str(&format!("===== {title} =====\n\n{text}\n"));
    for name in commands(&text) {
        reference(&[words, &[name]].concat(), into);
    }
}

#[test]
fn the_help_is_as_it_was() {
    let mut current = String::new();
    reference(&[], &mut current);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli_reference.txt");
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == before,
        "the help has changed; if that is wanted: UPDATE_SNAPSHOTS=1 cargo test --test cli_reference\n{current}"
    );
}
