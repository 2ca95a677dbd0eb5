//! Results to tables, JSON and HTML. Knows no kernel and reads no files: it is handed documents
//! and gives back text.
//!
//! Every kind of document has a module here, such as [`compare`], with a function for the
//! terminal and one for its section of a page. [`Document`] picks the module by the schema a file names.

pub mod arena;
mod axis;
pub mod bench;
mod chart;
pub mod compare;
pub mod doctor;
mod document;
mod html;
mod image;
mod number;
mod plot;
pub mod reproduce;
pub mod sim;
mod spread;
pub mod status;
mod svg;
pub mod sweep;
mod table;
mod terminal;
pub mod trim;

pub use document::{Document, Figures, ReadError};
pub use html::{Section, page};
pub use image::{ImageError, latency_png};
pub use number::printable;
pub use spread::Spread;
