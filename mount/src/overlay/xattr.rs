//! Extended attributes, POSIX ACLs among them, as far as the backing has them.

use std::ffi::OsStr;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::Overlay;
use super::reach::Reach;
use crate::{Caller, Interceptor, NodeId, sys};

/// Longest value, and longest list of names, that the kernel passes on.
const MAX_BYTES: usize = 65536;

impl<I: Interceptor> Overlay<I> {
    /// `getxattr(2)`.
    pub fn getxattr(&self, node: NodeId, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let file = self.reach(node)?;
        filled(|buf| match &file {
            Reach::Handle(file) => rustix::fs::fgetxattr(&**file, name, buf),
            other => rustix::fs::getxattr(sys::magic_link(other), name, buf),
        })
    }

    /// `listxattr(2)`: names, each ended by a NUL byte.
    pub fn listxattr(&self, caller: Caller, node: NodeId) -> Result<Vec<u8>, Errno> {
        let file = self.reach(node)?;
        let names = filled(|buf| match &file {
            Reach::Handle(file) => rustix::fs::flistxattr(&**file, buf),
            other => rustix::fs::listxattr(sys::magic_link(other), buf),
        })?;
        if caller.uid == 0 {
            return Ok(names);
        }
        Ok(without_trusted(&names))
    }

    /// `setxattr(2)`; `flags` are its flags.
    pub fn setxattr(
        &self,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let flags = XattrFlags::from_bits(flags.cast_unsigned()).ok_or(Errno::INVAL)?;
        match &self.reach(node)? {
            Reach::Handle(file) => rustix::fs::fsetxattr(&**file, name, value, flags),
            other => rustix::fs::setxattr(sys::magic_link(other), name, value, flags),
        }
    }

    /// `removexattr(2)`.
    pub fn removexattr(&self, node: NodeId, name: &OsStr) -> Result<(), Errno> {
        match &self.reach(node)? {
            Reach::Handle(file) => rustix::fs::fremovexattr(&**file, name),
            other => rustix::fs::removexattr(sys::magic_link(other), name),
        }
    }
}

/// Most values are short; a long one is asked for once more with all the room there is.
fn filled(mut get: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut small = [0; 512];
    match get(&mut small) {
        Ok(len) => Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {
            let mut large = vec![0; MAX_BYTES];
            let len = get(&mut large)?;
            large.truncate(len);
            Ok(large)
        }
        Err(error) => Err(error),
    }
}

/// The names that an ordinary user is shown.
fn without_trusted(names: &[u8]) -> Vec<u8> {
    names
        .split_inclusive(|&byte| byte == 0)
        .filter(|name| !name.starts_with(b"trusted."))
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_users_are_not_shown_trusted_attributes() {
        let names = b"user.a\0trusted.b\0security.c\0";
        assert_eq!(without_trusted(names), b"user.a\0security.c\0");
    }
}
