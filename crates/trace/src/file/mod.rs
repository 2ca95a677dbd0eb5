//! Our own trace file: Parquet, one row an event, in the order of their times.
//!
//! | column | type | holds |
//! | --- | --- | --- |
//! | `time_ns` | INT64 | when it began: nanoseconds since the trace began |
//! | `device` | STRING | the whole device's name, one of the header's `devices` |
//! | `kind` | STRING | the name of a [`EventKind`](trimtab_core::trace::EventKind), such as `discard` |
//! | `start` | INT64 | the first byte it names, on the device |
//! | `length` | INT64 | how many bytes it names |
//! | `latency_ns` | INT64, optional | nanoseconds from issue to completion |
//! | `process` | STRING, optional | who caused it |
//! | `error` | INT32 | the errno it ended with; 0 for none |
//! | `file_system` | STRING, optional | the mount point, one of the header's `file_systems`, that reported it |
//!
//! Of several devices with one name, or file systems with one mount point, all but the first carry a
//! number: `sda (2)`.
//!
//! The file's key-value metadata hold under `trimtab` the
//! [`TraceHeader`](trimtab_core::trace::TraceHeader) as JSON; its `schema` is the version of this
//! format. Numbers are stored as DELTA_BINARY_PACKED, names by dictionary, pages are compressed with
//! zstd. Every row group (up to 2^20 rows) is followed by a footer that names all groups so far, so a
//! file that was cut off is read up to the last footer in it. Readers of Parquet see the last footer
//! only; those before are gaps.

mod column;
mod dictionary;
mod encoding;
mod footer;
mod names;
mod read;
mod schema;
mod write;

pub(crate) use footer::is_inside;
pub use read::{Columns, TraceFile};
pub(crate) use read::{header_of, read_header, value_of};
pub(crate) use schema::{Column, HEADER_KEY, device_names, file_system_names, is_ours};
pub use write::TraceWriter;
