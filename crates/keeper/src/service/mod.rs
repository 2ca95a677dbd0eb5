//! The service: tends all mounted file systems from one thread, and tells what it does.

mod config;
mod context;
pub mod control;
mod doors;
mod http;
mod log;
mod managed;
mod metrics;
mod mounts;
mod notify;
mod patience;
mod persistence;
mod run;
mod signals;
mod storage;
mod trims;

pub use config::{CONFIG, Config, ConfigError, ServicePolicy, Settings, UnknownServicePolicy};
pub use doors::DoorError;
pub use log::{Field, Log, LogEvent};
pub use run::{Options, Service, ServiceError};
pub use storage::Storage;
