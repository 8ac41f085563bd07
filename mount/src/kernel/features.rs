//! What is agreed with the kernel when it first calls.

use std::io;

use fuser::{InitFlags, KernelConfig};

use super::passthrough::Passthrough;

/// Largest write that the kernel sends in one request.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Reads ahead and the like that may wait for us at once.
const MAX_BACKGROUND: u16 = 64;
/// `f_type` of filesystems that lie on others themselves.
const STACKED: [i64; 3] = [
    0x794c_7630, // overlayfs
    0xf15f,      // ecryptfs
    0x6573_5546, // fuse
];

/// Asks for what the kernel offers and we can use. `filesystem` is the backing's `f_type`.
pub(super) fn agree(
    config: &mut KernelConfig,
    passthrough: &Passthrough,
    filesystem: i64,
) -> io::Result<()> {
    let offered = config.capabilities();
    let wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_POSIX_ACL
            // Without it the kernel asks for security.capability before every write.
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
    let lacking = |_| io::Error::other("the kernel takes back what it offered");
    config.add_capabilities(wanted & offered).map_err(lacking)?;
    let stacked = STACKED.contains(&filesystem);
    let depth = if stacked { 2 } else { 1 };
    let passes = passthrough.is_wanted()
        && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        && config.set_max_stack_depth(depth).is_ok();
    if !passes {
        passthrough.give_up();
    }
    // Refusals name the nearest value that is possible; the default will do then.
    let _ = config.set_max_write(MAX_WRITE_BYTES);
    let _ = config.set_max_background(MAX_BACKGROUND);
    Ok(())
}
