//! The systemd user unit that mounts workspaces at login and after a crash.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::staging::write_record;
use crate::station::owner_only_dir;
use crate::surroundings;

const TEMPLATE: &str = include_str!("../../scripts/trashfs@.service");
const NAME: &str = "trashfs@.service";

/// Installs it for this user, with this program in it.
///
/// # Errors
/// When it can't be written.
pub fn install_unit() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe().map_err(|e| Failure::io("finding this program", &e))?;
    let dir = surroundings::systemd_user_dir();
    let fd = owner_only_dir(&dir)?;
    let text = TEMPLATE.replace("@TRASH@", &escaped(&program.display().to_string()));
    write_record(&fd, NAME, text.as_bytes())
        .map_err(|e| Failure::io(format!("writing {}", dir.join(NAME).display()), &e))?;
    Ok(dir.join(NAME))
}

/// As systemd.service(5) wants it in a command line.
fn escaped(path: &str) -> String {
    let plain = path.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", plain.replace('%', "%%").replace('$', "$$"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_path_is_quoted() {
        assert_eq!(escaped("/a b/%t$x"), "\"/a b/%%t$$x\"");
        assert!(TEMPLATE.contains("ExecStart=@TRASH@ mount"));
    }
}
