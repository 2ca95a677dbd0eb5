//! Sweeps: every combination of a grid's traces, workloads, drives, policies and options, each computed once.
//!
//! A [`Grid`] names the values, [`SweepPlan`] makes [`Cell`]s of them, and [`sweep`] computes those that a [`Store`]
//! does not have. The results of a cell depend on nothing but the cell, and name no machine and no wall time: they
//! are the same bytes wherever they are computed.

mod cell;
mod grid;
mod memory;
mod plan;
mod run;
mod shard;
mod store;
mod table;
mod trace;

pub use cell::{CELL_SCHEMA, Cell, CellResult, VERSION};
pub use grid::{DriveState, Grid, GridError};
pub use plan::{PlanSweepError, PlannedCell, SweepPlan};
pub use run::{SweepError, SweepOptions, SweepProgress, SweepState, document, sweep};
pub use shard::{Shard, ShardError};
pub use store::{CellFile, Store, Stored};
pub use table::{parquet, whole};
pub use trace::{SharedTrace, Traces, content_hash};
