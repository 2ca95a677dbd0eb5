//! The nouns every other room uses: units, extents, statistics, drive profiles and policies.
//!
//! Nothing in here does I/O. Whatever needs a file, a clock or the kernel is handed to it.

pub mod document;
pub mod error;
pub mod extent;
pub mod fit;
pub mod policy;
pub mod profile;
pub mod stats;
pub mod trace;
pub mod units;

pub use extent::{Extent, ExtentSet};
pub use units::{Bytes, Nanos, Pages, Rate};
