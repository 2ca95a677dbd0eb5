//! Reading and writing files whose paths a user names, also where other users can write to the directory.
//!
//! [`Output`] is how every result file is written; [`open_regular`] and [`read_regular`] are how files are
//! read that must not block or fill the memory.

mod draft;
mod error;
mod input;
mod output;
mod walk;

pub use draft::Draft;
pub use error::OutputError;
pub use input::{open_regular, read_regular, read_regular_text};
pub use output::Output;
pub use walk::create_directory;
