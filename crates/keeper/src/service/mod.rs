//! The service: manages all mounted file systems from one thread, and reports its state.

mod backoff;
mod config;
mod connection;
mod context;
pub mod control;
mod early_seal;
mod guarded_trimmer;
mod http;
mod log;
mod managed;
pub mod metrics;
mod mounts;
mod notify;
mod passing;
mod persistence;
mod run;
mod server;
mod signals;
mod storage;
mod survey;
mod timeout;

pub use config::{CONFIG, Config, ConfigError, ServicePolicy, Settings, UnknownServicePolicy};
pub use log::{Field, Log, LogEvent};
pub use run::{Options, Service, ServiceError};
pub use server::ServerError;
pub use storage::Storage;
pub use survey::survey;
