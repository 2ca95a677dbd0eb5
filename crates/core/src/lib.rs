//! The types that all other crates use: units, extents, statistics, drive profiles and policies.
//!
//! Nothing in here does I/O. Whatever needs a file, a clock or the kernel is handed to it.

pub mod aligned;
pub mod contents;
pub mod device;
pub mod discard_units;
mod distinct;
pub mod document;
pub mod erase;
pub mod error;
pub mod extent;
pub mod fit;
pub mod hash;
pub mod interrupt;
pub mod policy;
pub mod profile;
pub mod shell;
pub mod stats;
pub mod table;
pub mod trace;
pub mod units;
pub mod verdict;

pub use discard_units::DiscardUnits;
pub use distinct::distinct;
pub use extent::{Extent, ExtentSet};
pub use units::{Bytes, Nanos, Pages, Rate, SECTOR};
