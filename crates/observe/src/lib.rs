//! Observes the kernel: what it really discards, writes and frees.
//!
//! [`record()`](record::record) writes a trace file, [`watch::Session`] adds events up while they happen. Both
//! listen with [`trimtab_linux::tracefs::Listener`], and can do so for the span of a command
//! ([`foreground::Foreground`]).

pub mod foreground;
pub mod record;
pub mod watch;
