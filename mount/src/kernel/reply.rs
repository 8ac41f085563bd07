//! Answers that several requests have in common.

use std::time::Duration;

use fuser::{Generation, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};
use rustix::io::Errno;

use super::Kernel;
use super::convert::{errno, file_attr};
use crate::overlay::Found;
use crate::{Attr, Interceptor};

/// How long the kernel may believe what only it can change.
pub(super) const STEADY_TTL: Duration = Duration::from_secs(24 * 60 * 60);

impl<I: Interceptor> Kernel<I> {
    /// How long the kernel may believe attributes; `steady` are those of a file whose memory
    /// nobody has mapped for writing.
    pub(super) fn ttl(&self, steady: bool) -> Duration {
        if steady || !self.passthrough.hides_writes() {
            STEADY_TTL
        } else {
            Duration::ZERO
        }
    }

    pub(super) fn reply_entry(&self, reply: ReplyEntry, found: Result<Found, Errno>) {
        match found {
            Ok(found) => reply.entry_with_ttls(
                &self.ttl(found.steady),
                &STEADY_TTL,
                &file_attr(&found.attr),
                Generation(found.generation),
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    pub(super) fn reply_attr(&self, reply: ReplyAttr, attr: Result<(Attr, bool), Errno>) {
        match attr {
            Ok((attr, steady)) => reply.attr(&self.ttl(steady), &file_attr(&attr)),
            Err(error) => reply.error(errno(error)),
        }
    }
}

pub(super) fn reply_empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::RANGE)),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}
