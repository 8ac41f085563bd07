use super::{Context, Report};
use crate::failure::Failure;
use crate::station::set_up_local;

/// Set this station up
///
/// Writes the station's name and profile to its configuration. Doing it again changes nothing,
/// except for a name that is given.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trash setup --local --station laptop")]
pub struct Args {
    /// Keep everything on this machine; no service and no credentials are needed (the default)
    #[arg(long)]
    local: bool,
    /// Name that every entry of this station carries (default: the host's name)
    #[arg(long, value_name = "NAME")]
    station: Option<String>,
    /// Install a systemd user unit that mounts workspaces at login and after a crash
    #[arg(long)]
    systemd: bool,
}

/// Runs it.
///
/// # Errors
/// When the name can't be one, or the configuration can't be read or written.
pub(super) fn run(args: Args, _context: &Context) -> Result<Report, Failure> {
    let Args {
        local: _,
        station,
        systemd,
    } = args;
    let done = set_up_local(station.as_deref())?;
    let mut text = format!(
        "{} station {} with the local profile ({})",
        if done.changed { "set up" } else { "unchanged:" },
        done.station.station,
        done.config.display()
    );
    if systemd {
        let unit = crate::station::install_unit()?;
        text.push_str(&format!(
            "\ninstalled {}\nnext: systemctl --user enable --now \"$(systemd-escape --template=trashfs@.service --path DIR)\"",
            unit.display()
        ));
    } else {
        text.push_str("\nnext: trash mount DIR");
    }
    Report::new(&done, text)
}
