//! What a restore did, for people.

use std::fmt::Write as _;

use super::output::{FAINT, GOOD, WARNING, styled};
use super::text;
use crate::failure::Ending;
use crate::record::Kind;
use crate::restore::{LeftAlone, Placed, Restored, Verified, Why};

/// Paths shown of each sort; the JSON form has all.
const SHOWN: usize = 20;

/// Lines about a restore; `below` is the directory that copies went to.
pub(super) fn lines(restored: &Restored, below: Option<&str>) -> String {
    let verb = match (restored.dry_run, below) {
        (false, None) => "restored",
        (false, Some(_)) => "copied",
        (true, None) => "would restore",
        (true, Some(_)) => "would copy",
    };
    let mut out = String::new();
    each(&mut out, &restored.restored, |p| placed(verb, p, below));
    each(&mut out, &restored.recreated, |path| {
        format!("{} {}/", styled(FAINT, "made anew"), text::path(path))
    });
    each(&mut out, &restored.left_alone, left_alone);
    for note in &restored.notes {
        line(
            &mut out,
            &format!("{} {}", styled(WARNING, "note:"), text::safe(note)),
        );
    }
    if !restored.dry_run && !restored.restored.is_empty() {
        line(
            &mut out,
            &styled(FAINT, verified(restored.verified)).to_string(),
        );
    }
    if out.is_empty() {
        out.push_str("there was nothing to restore");
    }
    out
}

/// A restore that left something alone did not do all that was asked: exit code 2.
pub(super) fn ending(restored: &Restored) -> Option<Ending> {
    let refused = |left: &LeftAlone| left.why != Why::OtherVersion;
    (!restored.dry_run && restored.left_alone.iter().any(refused)).then_some(Ending::Refused)
}

fn line(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(text);
}

fn each<T>(out: &mut String, items: &[T], show: impl Fn(&T) -> String) {
    for item in items.iter().take(SHOWN) {
        line(out, &show(item));
    }
    if items.len() > SHOWN {
        line(out, &format!("… and {} more", items.len() - SHOWN));
    }
}

fn placed(verb: &str, placed: &Placed, below: Option<&str>) -> String {
    let slash = if placed.kind == Kind::Directory {
        "/"
    } else {
        ""
    };
    let mut shown = format!("{} {}{slash}", styled(GOOD, verb), text::path(&placed.path));
    if let Some(below) = below {
        // Writing to a String can't fail.
        let _ = write!(
            shown,
            " -> {}/{}",
            text::safe(below),
            text::path(&placed.to)
        );
    } else if placed.to != placed.path {
        let _ = write!(shown, " -> {}", text::path(&placed.to));
    }
    if let Some(entry) = &placed.swapped_into {
        let _ = write!(shown, " (what was there is now {})", text::id(entry));
    }
    shown
}

fn left_alone(left: &LeftAlone) -> String {
    let why = match left.why {
        Why::Occupied => "something is at its path",
        Why::NoDirectory => "a part of its path is no directory",
        Why::ChangedSince => "what is at its path has changed since",
        Why::GoneSince => "what was left at its path is gone",
        Why::OtherVersion => "another version of it went back",
    };
    let mut shown = format!(
        "{} {}: {why}",
        styled(WARNING, "left alone"),
        text::path(&left.path)
    );
    if let Some(there) = &left.there {
        let at = left.in_the_way.as_ref().unwrap_or(&left.path);
        let _ = write!(shown, "; at {} is {there}", text::path(at));
    }
    if !left.next.is_empty() {
        let _ = write!(
            shown,
            "\n  {} {}",
            styled(FAINT, "next:"),
            text::safe(&left.next)
        );
    }
    shown
}

fn verified(verified: Verified) -> &'static str {
    match verified {
        Verified::NeverMoved => "the very files went back; no byte was copied",
        Verified::Fingerprints => "the very files went back, and agree with the manifest",
        Verified::Hashes => "every byte was read and agrees with its hash",
    }
}
