//! A page-mapped flash model, its timing, and the simulator. No I/O.
//!
//! [`Ftl`] is the mapping alone: where each logical page lies, which erase block is cleaned next
//! and what is copied for it. It tells a [`Flash`] what it reads, programs and erases, so that the
//! same mapping runs bare ([`Untimed`], which compiles away) or under a clock. [`Device`] is a
//! whole drive made from a profile: an `Ftl`, channels and dies with busy-until stamps, a write
//! buffer, a host link and the drive's way with discards. [`ClosedLoop`] is the host in front of
//! it. All time in here is model time.
//!
//! [`replay`] puts a trace before a drive under a policy, [`synthetic`] runs generated workloads to their
//! steady state, and [`theory`] has the closed forms that the model is held to.
//!
//! To see it at work, run the example `write_amplification`, in `examples/`.

mod array;
mod background;
mod blocks;
mod buffer;
mod command;
mod controller;
mod device;
mod discards;
mod flash;
mod geometry;
mod host;
mod map_cache;
mod mapping;
pub mod replay;
pub mod synthetic;
mod table;
pub mod theory;
mod validity;
mod workload;

pub use command::{Command, Op};
pub use device::Device;
pub use flash::{Cause, Flash, Untimed};
pub use geometry::{FtlConfig, GeometryError};
pub use host::{ClosedLoop, Completion};
pub use mapping::{Ftl, Totals};
pub use workload::{UnknownWorkload, Workload};
