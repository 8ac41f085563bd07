//! The station's configuration: who it is. Its policy rules stand in the same file and are read
//! by `policy`.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::staging::{read_record, write_record};
use crate::station::{owner_only_dir, unreachable};
use crate::surroundings;

/// The configuration's file name in the station's configuration directory.
pub const CONFIG_FILE: &str = "config.toml";
/// What may stand at its top level; rules and budget are the policy's to read.
const KEYS: [&str; 4] = ["profile", "station", "rule", "budget"];
const NAME_LENGTH_MAX: usize = 64;

/// Where what is removed finds its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// In the workspace's own filesystem; no service, no credentials.
    Local,
}

/// Who this station is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Station {
    /// Its profile.
    pub profile: Profile,
    /// Its name, which every entry carries.
    pub station: String,
}

impl Station {
    /// One that was never set up, named after its host.
    pub(crate) fn unnamed() -> Self {
        Self {
            profile: Profile::Local,
            station: host_name(),
        }
    }
}

/// What setting up came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetUp {
    /// The station as it is now.
    #[serde(flatten)]
    pub station: Station,
    /// Where that stands.
    pub config: PathBuf,
    /// Whether anything was written.
    pub changed: bool,
}

/// Where the configuration lies.
pub fn config_path() -> PathBuf {
    surroundings::config_dir().join(CONFIG_FILE)
}

/// The station, unless it was never set up.
///
/// # Errors
/// `config` when the file can't be read, is garbled, or others may write to it.
pub fn load() -> Result<Option<Station>, Failure> {
    match read()? {
        Some(text) => parse(&text).map(Some),
        None => Ok(None),
    }
}

fn read() -> Result<Option<String>, Failure> {
    let path = config_path();
    let unreadable = |e: &io::Error| {
        let failure = unreachable("reading", &path, e);
        match failure.state.is_empty() {
            true => failure.state("nothing was changed"),
            false => failure,
        }
    };
    let meta = match std::fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(&e)),
    };
    let me = rustix::process::geteuid().as_raw();
    if ![me, 0].contains(&meta.uid()) || meta.mode() & 0o022 != 0 {
        let what = format!("{} may be written by others than its owner", path.display());
        return Err(Failure::refused("config-unsafe", what)
            .state("its rules bound what a workspace may set; nothing was changed")
            .next(format!("chmod 600 {}", path.display())));
    }
    std::fs::read_to_string(&path)
        .map(Some)
        .map_err(|e| unreadable(&e))
}

fn parse(text: &str) -> Result<Station, Failure> {
    let table = table(text)?;
    let station = ["profile", "station"].map(|key| (key, table.get(key).cloned()));
    let station = station
        .into_iter()
        .filter_map(|(k, v)| Some((k.to_owned(), v?)));
    toml::Table::from_iter(station)
        .try_into()
        .map_err(|e: toml::de::Error| garbled(e.message()))
}

/// The file's top level, with keys that are known.
fn table(text: &str) -> Result<toml::Table, Failure> {
    let table: toml::Table = toml::from_str(text).map_err(|e| garbled(e.to_string().trim_end()))?;
    match table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        Some(key) => Err(garbled(&format!(
            "unknown key `{key}`, expected one of {}",
            KEYS.join(", ")
        ))),
        None => Ok(table),
    }
}

fn garbled(how: &str) -> Failure {
    let path = config_path();
    Failure::failed("config", format!("{} is garbled: {how}", path.display()))
        .state("nothing was changed")
        .next(format!("correct {}", path.display()))
}

/// The text of the configuration, for what else stands in it.
///
/// # Errors
/// As [`load`].
pub(crate) fn text() -> Result<Option<String>, Failure> {
    read()
}

/// Makes this station one with the local profile, named `name` (the host's name by default).
/// Doing it again changes nothing but a name that is given and differs.
///
/// # Errors
/// `station-name` for a name that can't be one, and what reading and writing give.
pub fn set_up_local(name: Option<&str>) -> Result<SetUp, Failure> {
    if let Some(name) = name {
        check_name(name)?;
    }
    let before = read()?;
    // A file with policy rules only has no station in it yet.
    let known = match &before {
        Some(text) if states_a_station(text)? => Some(parse(text)?),
        _ => None,
    };
    let wanted = Station {
        profile: Profile::Local,
        station: match (name, &known) {
            (Some(name), _) => name.to_owned(),
            (None, Some(known)) => known.station.clone(),
            (None, None) => host_name(),
        },
    };
    let changed = known.as_ref() != Some(&wanted);
    if changed {
        write(&with_station(&before.unwrap_or_default(), &wanted))?;
    }
    Ok(SetUp {
        station: wanted,
        config: config_path(),
        changed,
    })
}

fn states_a_station(text: &str) -> Result<bool, Failure> {
    let table = table(text)?;
    Ok(table.contains_key("station") || table.contains_key("profile"))
}

/// The text with its two lines on the station set, and all else (rules, comments) as it was.
fn with_station(text: &str, station: &Station) -> String {
    let Profile::Local = station.profile;
    let head = format!("profile = \"local\"\nstation = \"{}\"\n", station.station);
    let mut in_top_table = true;
    let kept = text.lines().filter(|line| {
        let line = line.trim_start();
        in_top_table &= !line.starts_with('[');
        let key = line.split('=').next().unwrap_or_default().trim();
        !(in_top_table && ["profile", "station"].contains(&key))
    });
    kept.fold(head, |all, line| all + line + "\n")
}

fn write(text: &str) -> Result<(), Failure> {
    let dir = surroundings::config_dir();
    let failed = |e: io::Error| {
        Failure::io(format!("writing {}", config_path().display()), &e)
            .state("the configuration is as it was")
    };
    let fd: OwnedFd = owner_only_dir(&dir)?;
    if read_record(&fd, CONFIG_FILE).map_err(failed)?.as_deref() == Some(text.as_bytes()) {
        return Ok(());
    }
    write_record(&fd, CONFIG_FILE, text.as_bytes()).map_err(failed)
}

fn check_name(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if !name.is_empty() && name.len() <= NAME_LENGTH_MAX && name.chars().all(fits) {
        return Ok(());
    }
    let what = format!(
        "{name:?} is no station name (1 to {NAME_LENGTH_MAX} letters, digits, dots, dashes, underscores)"
    );
    Err(Failure::failed("station-name", what)
        .state("nothing was changed")
        .next("trash setup --local --station NAME"))
}

fn host_name() -> String {
    let name = match nix::sys::utsname::uname() {
        Ok(uname) => uname.nodename().to_string_lossy().into_owned(),
        Err(_) => String::new(),
    };
    let fitting = |c: char| match c {
        c if c.is_ascii_alphanumeric() || ".-_".contains(c) => c,
        _ => '-',
    };
    let name: String = name.chars().map(fitting).take(NAME_LENGTH_MAX).collect();
    match name.is_empty() {
        true => "station".into(),
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_comments_survive_a_new_name() {
        let before = "# mine\nstation = \"old\"\nprofile=\"local\"\n\n[[rule]]\nstation = \"x\"\n";
        let station = Station {
            profile: Profile::Local,
            station: "new".into(),
        };
        let after = with_station(before, &station);
        assert_eq!(parse(&after).unwrap(), station);
        assert!(after.ends_with("# mine\n\n[[rule]]\nstation = \"x\"\n"));
        assert_eq!(with_station(&after, &station), after);
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert_eq!(check_name(name).unwrap_err().code, "station-name");
        }
        check_name("build-7.example_org").unwrap();
        check_name(&host_name()).unwrap();
    }

    #[test]
    fn a_garbled_file_is_named() {
        let failure = parse("profile = \"moon\"\nstation = \"a\"\n").unwrap_err();
        assert!(failure.what.contains("config.toml"), "{failure}");
        assert!(states_a_station("[[").is_err());
        assert!(!states_a_station("[[rule]]\nkeep=\"local\"\n").unwrap());
    }
}
