//! The formats of other programs and of published traces, a file each.

pub(crate) mod alibaba;
pub(crate) mod biosnoop;
pub(crate) mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod cloudphysics;
pub(crate) mod fio;
pub(crate) mod fiu;
pub(crate) mod ftrace;
mod in_flight;
mod kinds;
pub(crate) mod midas;
mod mmc;
pub(crate) mod mobile;
pub(crate) mod msr;
mod partitions;
mod requests;
pub(crate) mod simulator;
pub(crate) mod spc;
pub(crate) mod systor;
pub(crate) mod tencent;
pub(crate) mod vscsi;
