//! Descriptors: closed, duplicated, asked.

use libc::{c_int, c_uint, c_ulong};
use posix::calls;

use crate::int;

interpose! {
    fn close(fd: c_int) -> c_int = int(calls::close(fd));
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = int(calls::close_range(first, last, flags));
    fn closefrom(first: c_int) -> () = calls::close_range(first.max(0) as c_uint, c_uint::MAX, 0).map(|_| ());
    fn dup(fd: c_int) -> c_int = int(calls::fcntl(fd, libc::F_DUPFD, 0));
    fn dup2(old: c_int, new: c_int) -> c_int = int(calls::dup3(old, new, 0));
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = int(calls::dup3(old, new, flags));
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = int(calls::fcntl(fd, command, argument));
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = int(calls::fcntl(fd, command, argument));
    fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int =
        int(calls::ioctl(fd, request, argument as *mut c_int));
    /// The process ends: what its sockets have sent goes out first.
    fn _exit(status: c_int) -> () = {
        calls::exiting();
        None
    };
    fn _Exit(status: c_int) -> () = {
        calls::exiting();
        None
    };
}
