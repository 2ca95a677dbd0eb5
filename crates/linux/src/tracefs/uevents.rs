//! The kernel's notices that devices come, go and change.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};

/// The multicast group of the kernel's own messages; udev uses another.
const KERNEL: u32 = 1;

/// A socket that receives a message for each such event.
#[derive(Debug)]
pub(super) struct Uevents(OwnedFd);

impl Uevents {
    pub fn listen() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL))?;
        Ok(Self(socket))
    }

    /// Returns true if there were any since the last call.
    pub fn take(&self) -> bool {
        let mut any = false;
        loop {
            match recv(&self.0, &mut [0; 64][..], RecvFlags::empty()) {
                // NOBUFS: there were more than the socket has room for.
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for Uevents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
