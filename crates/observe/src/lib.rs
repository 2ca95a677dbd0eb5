//! Observes the kernel's discards, writes, reads and frees.
//!
//! [`record()`](record::record) writes a trace file, [`watch::Session`] counts events as they happen. Both
//! use [`trimtab_linux::tracefs::Listener`], optionally while a command runs ([`foreground::Foreground`]).

mod anonymous;
pub mod foreground;
pub mod record;
pub mod watch;
