//! Messages on a socket: a mark, a length, that many bytes of JSON, and with the first of them
//! a few descriptors.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixStream};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

use crate::ids::WorkspaceId;

/// Descriptors in one message.
pub(super) const FDS_MAX: usize = 4;
/// Bytes in a request.
pub(super) const REQUEST_MAX_BYTES: u32 = 1024 * 1024;
/// Bytes in an answer.
pub(super) const ANSWER_MAX_BYTES: u32 = 256 * 1024 * 1024;

/// Begins every message; another version of the protocol begins otherwise.
const MARK: [u8; 4] = *b"TRS1";
const HEAD_BYTES: usize = 8;

/// Sends one message.
pub(super) fn send(stream: &UnixStream, body: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(body.len()).map_err(|_| too_long())?;
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&MARK);
    head[4..].copy_from_slice(&length.to_le_bytes());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    let mut sent = retrying(|| {
        let parts = [IoSlice::new(&head)];
        rustix::net::sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    let mut writer = stream;
    while sent < HEAD_BYTES {
        writer.write_all(&head[sent..])?;
        sent = HEAD_BYTES;
    }
    writer.write_all(body)
}

/// Takes one message of at most `max_bytes`.
pub(super) fn receive(stream: &UnixStream, max_bytes: u32) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut head = [0; HEAD_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let taken = retrying(|| {
        let mut parts = [IoSliceMut::new(&mut head)];
        rustix::net::recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?
    .bytes;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    let mut reader = stream;
    if taken == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    reader.read_exact(&mut head[taken..])?;
    let (mark, length) = head.split_at(4);
    if mark != MARK {
        return Err(io::Error::other("the other side speaks another protocol"));
    }
    let length = u32::from_le_bytes(length.try_into().map_err(|_| too_long())?);
    if length > max_bytes {
        return Err(too_long());
    }
    let mut body = Vec::new();
    reader.take(length.into()).read_to_end(&mut body)?;
    match body.len() == length as usize {
        true => Ok((body, fds)),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the message is too long")
}

fn retrying<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// Whether the other end is run by this user or by root.
pub(super) fn peer_is_trusted(stream: impl AsFd) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// A name for the socket that no mount can cover, for a workspace that is mounted over the
/// directory of the sockets.
pub(super) fn abstract_address(id: &WorkspaceId) -> io::Result<SocketAddr> {
    let uid = rustix::process::geteuid().as_raw();
    let name = format!("trashfs/{uid}/{id}");
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors() {
        let (a, b) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let sent = std::thread::spawn(move || {
            let long = vec![b'x'; 300_000];
            send(&a, b"{}", &[file.as_fd()]).unwrap();
            send(&a, &long, &[]).unwrap();
        });
        let (body, fds) = receive(&b, 10).unwrap();
        assert_eq!((body.as_slice(), fds.len()), (b"{}".as_slice(), 1));
        let (body, fds) = receive(&b, REQUEST_MAX_BYTES).unwrap();
        assert_eq!((body.len(), fds.len()), (300_000, 0));
        sent.join().unwrap();
        assert!(receive(&b, 10).is_err());
    }

    #[test]
    fn long_strange_and_cut_messages_are_refused() {
        let attempt = |bytes: &[u8]| {
            let (mut a, b) = UnixStream::pair().unwrap();
            a.write_all(bytes).unwrap();
            drop(a);
            receive(&b, 10)
        };
        assert!(attempt(b"TRS1\x0b\0\0\0aaaaaaaaaaa").is_err());
        assert!(attempt(b"HTTP\x02\0\0\0aa").is_err());
        assert!(attempt(b"TRS1\x05\0\0\0aa").is_err());
        assert!(attempt(b"TR").is_err());
        assert!(attempt(b"TRS1\x02\0\0\0aa").is_ok());
    }
}
