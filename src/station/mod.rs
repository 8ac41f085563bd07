//! The station: this user on this machine. Its configuration, and the register of its
//! workspaces.

mod config;
mod locate;
mod register;
mod unit;

pub(crate) use config::text as config_text;
pub use config::{CONFIG_FILE, Profile, SetUp, Station, config_path, load, set_up_local};
pub(crate) use locate::unreachable;
pub use locate::{Located, Presence, all, normalised, workspace_of};
pub use register::{Kind, MountRecord, Register, Registered};
pub(crate) use register::{RuntimeDir, owner_only_dir};
pub use unit::install_unit;
