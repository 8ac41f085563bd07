//! Precedence: what the station says is a floor.

use proptest::prelude::*;

use super::*;
use crate::policy::form::{StationPolicy, workspace_rules};
use crate::record::{Cause, Keep, Kept};

fn rules(station: &str, workspace: &str) -> Rules {
    let station = StationPolicy::parse("config.toml", station).unwrap();
    let workspace = workspace_rules(".trashfs.toml", workspace).unwrap();
    Rules::new(&station.rules, &workspace).unwrap()
}

fn subject(path: &str, cause: Cause) -> Subject<'_> {
    Subject {
        path: Path::new(path),
        cause,
        comm: "rm",
        asked_to_remove: false,
        size_bytes: 1 << 20,
        age_s: 60,
        scratch: false,
        cache: false,
    }
}

fn kept(rules: &Rules, path: &str) -> (Keep, u64, Option<u32>) {
    match rules.decide(&subject(path, Cause::Remove)) {
        Decision::Keep(kept) => (kept.keep, kept.retain.as_secs() / 86_400, kept.versions_max),
        Decision::Delete { rule } => panic!("{path} is deleted by {rule}"),
    }
}

#[test]
fn the_first_matching_rule_decides_and_what_it_leaves_out_is_the_defaults() {
    let rules = rules(
        "",
        r#"
        [[rule]]
        match = "a/keep.log"
        retain = "30d"
        [[rule]]
        match = "*.log"
        keep = "local"
        [[rule]]
        match = "a"
        keep = "none"
        "#,
    );
    assert_eq!(kept(&rules, "a/keep.log"), (Keep::Hosted, 30, None));
    assert_eq!(kept(&rules, "a/x.log"), (Keep::Local, 7, None));
    assert_eq!(kept(&rules, "b"), (Keep::Hosted, 365, None));
    assert_eq!(
        rules.decide(&subject("a/b/c", Cause::Remove)),
        Decision::Delete {
            rule: ".trashfs.toml:8".into()
        }
    );
}

#[test]
fn a_workspace_strengthens_a_station_rule_but_does_not_loosen_it() {
    let station = "[[rule]]\nmatch = \"**\"\nkeep = \"hosted\"\nretain = \"30d\"\n";
    for (workspace, expected) in [
        ("keep = \"none\"", (Keep::Hosted, 30, None)),
        (
            "keep = \"local\"\nretain = \"2d\"",
            (Keep::Hosted, 30, None),
        ),
        ("retain = \"90d\"", (Keep::Hosted, 90, None)),
        ("versions = 1", (Keep::Hosted, 30, None)),
    ] {
        let rules = rules(station, &format!("[[rule]]\n{workspace}\n"));
        assert_eq!(kept(&rules, "x"), expected, "{workspace}");
    }
    let rules = rules(
        "[[rule]]\nmatch = \"tmp\"\nkeep = \"none\"",
        "[[rule]]\nmatch = \"tmp/good\"\nkeep = \"local\"",
    );
    assert_eq!(kept(&rules, "tmp/good"), (Keep::Local, 7, None));
}

#[test]
fn every_condition_narrows() {
    let says = |conditions: &str| {
        let rules = rules("", &format!("[[rule]]\n{conditions}\nkeep = \"none\"\n"));
        matches!(
            rules.decide(&subject("x", Cause::Remove)),
            Decision::Delete { .. }
        )
    };
    for yes in [
        "cause = \"remove\"",
        "cause = [\"replace\", \"remove\"]",
        "process = \"rm\"",
        "larger_than = \"1KiB\"",
        "smaller_than = \"1GiB\"",
        "older_than = \"10s\"",
        "younger_than = \"1h\"",
    ] {
        assert!(says(yes), "{yes}");
    }
    for no in [
        "cause = \"truncate\"",
        "process = \"git\"",
        "larger_than = \"1MiB\"",
        "smaller_than = \"1MiB\"",
        "older_than = \"60s\"",
        "younger_than = \"60s\"",
        "match = \"y\"",
    ] {
        assert!(!says(no), "{no}");
    }
}

fn any_rule() -> impl Strategy<Value = String> {
    let pattern = prop_oneof![
        Just(String::new()),
        Just("match = \"**\"\n".to_owned()),
        Just("match = [\"a\", \"*.log\"]\n".to_owned()),
        Just("match = \"a/b/*\"\n".to_owned()),
    ];
    let condition = prop_oneof![
        Just(""),
        Just("cause = \"remove\"\n"),
        Just("cause = [\"replace\", \"truncate\"]\n"),
        Just("process = \"git\"\n"),
        Just("larger_than = \"1KiB\"\n"),
        Just("younger_than = \"10s\"\n"),
    ];
    let says = prop_oneof![
        Just("keep = \"none\"\n".to_owned()),
        (
            prop_oneof![Just("local"), Just("hosted")],
            1u32..=365,
            1u32..30
        )
            .prop_map(|(keep, days, versions)| format!(
                "keep = \"{keep}\"\nretain = \"{days}d\"\nversions = {versions}\n"
            )),
        (1u32..=365).prop_map(|days| format!("retain = \"{days}d\"\n")),
        Just("keep = \"local\"\n".to_owned()),
        Just("versions = 2\n".to_owned()),
    ];
    (pattern, condition, says).prop_map(|(p, c, s)| format!("[[rule]]\n{p}{c}{s}"))
}

fn any_file() -> impl Strategy<Value = String> {
    proptest::collection::vec(any_rule(), 0..4).prop_map(|rules| rules.concat())
}

proptest! {
    /// Wherever a station rule matches, no workspace file makes the outcome weaker in any
    /// respect; where none does, the outcome is what the workspace alone would have.
    #[test]
    fn a_workspace_never_loosens_the_station(
        station in any_file(),
        workspace in any_file(),
        path in prop_oneof![Just("a"), Just("a/b/c"), Just("x.log"), Just("node_modules/y"), Just("q")],
        cause in prop_oneof![Just(Cause::Remove), Just(Cause::Replace), Just(Cause::Truncate)],
        comm in prop_oneof![Just("git"), Just("rm")],
        size_bytes in prop_oneof![Just(0u64), Just(1 << 20)],
        age_s in prop_oneof![Just(1u64), Just(1_000)],
        scratch: bool,
        cache: bool,
    ) {
        let path = Path::new(path);
        let subject = Subject { path, cause, comm, asked_to_remove: false, size_bytes, age_s, scratch, cache };
        let outcome = |rules: &Rules| rules.outcome(rules.deciders(&subject), &subject);
        let both = rules(&station, &workspace);
        let alone = rules(&station, "");
        if both.deciders(&subject).station.is_some() {
            prop_assert!(outcome(&both).at_least(outcome(&alone)));
        } else {
            prop_assert_eq!(outcome(&both), outcome(&rules("", &workspace)));
        }
    }

    /// Strengthening is a join: it does not matter who comes first.
    #[test]
    fn strengthening_is_symmetric_and_idempotent(
        a in (any::<bool>(), any::<bool>(), 1u64..99, proptest::option::of(1u32..9)),
        b in (any::<bool>(), any::<bool>(), 1u64..99, proptest::option::of(1u32..9)),
    ) {
        let outcome = |(delete, hosted, days, versions_max): (bool, bool, u64, Option<u32>)| {
            if delete { return Outcome::Delete; }
            let keep = if hosted { Keep::Hosted } else { Keep::Local };
            let retain = std::time::Duration::from_secs(days);
            Outcome::Keep(Kept { keep, retain, versions_max })
        };
        let (a, b) = (outcome(a), outcome(b));
        let both = a.strengthened_by(b);
        prop_assert_eq!(both, b.strengthened_by(a));
        prop_assert!(both.at_least(a) && both.at_least(b));
    }
}
