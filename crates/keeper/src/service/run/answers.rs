//! What the service answers to who comes in.

use std::time::{Instant, SystemTime};

use trimtab_core::ExtentSet;
use trimtab_core::document::{STATUS_SCHEMA, StatusDocument};
use trimtab_linux::memory;

use super::Service;
use crate::service::control::{Piece, Request, Response};
use crate::service::doors::{Visit, VisitorId};
use crate::service::managed::ManagedFileSystem;
use crate::service::{http, metrics};

impl Service {
    /// Answers who comes in.
    pub(super) fn attend(&mut self) {
        // Once: others may come as fast as these are answered.
        self.doors.let_in(Instant::now());
        loop {
            let visits = self.doors.attend(Instant::now());
            if visits.is_empty() {
                break;
            }
            for (visitor, visit) in visits {
                match visit {
                    Visit::Asks(request) => {
                        let response = self.answer(visitor, request);
                        self.doors.answer(visitor, &response);
                    }
                    Visit::Status => {
                        // A document of text and numbers always can be written as JSON.
                        let status = serde_json::to_vec(&self.status()).unwrap_or_default();
                        self.doors.hand_last(visitor, status);
                    }
                    Visit::Metrics => {
                        let body = metrics::render(self.status()).unwrap_or_default();
                        self.doors.hand_last(visitor, http::metrics(&body));
                    }
                    Visit::Left => self.end_lease(visitor, None),
                }
            }
        }
        if self.doors.take_bulk() {
            memory::give_back();
        }
    }

    fn answer(&mut self, visitor: VisitorId, request: Request) -> Response {
        let now = self.now();
        match request {
            Request::Status => Response::Status(self.status()),
            Request::Reload => match self.reload() {
                Ok(()) => Response::Done,
                Err(reason) => Response::Refused(reason),
            },
            Request::TakePending { mount } => {
                // What was freed a moment ago belongs to it.
                self.read_at = Some(now);
                self.listen();
                let wanted = |managed: &&mut ManagedFileSystem| managed.found.targets.contains(&mount);
                let lease = match self.file_systems.iter_mut().find(wanted) {
                    Some(managed) => managed.lease_pending(visitor, now),
                    None => Err("no file system on a block device is mounted there"),
                };
                match lease {
                    Ok(pending) => Response::Pending(pending),
                    Err(reason) => Response::Refused(format!("{}: {reason}", mount.display())),
                }
            }
            Request::GiveBack { left } => {
                self.end_lease(visitor, Some(left.into_iter().filter_map(Piece::extent).collect()));
                Response::Done
            }
        }
    }

    fn end_lease(&mut self, visitor: VisitorId, left: Option<ExtentSet>) {
        for managed in &mut self.file_systems {
            managed.end_lease(visitor, left.as_ref());
        }
    }

    fn status(&self) -> StatusDocument {
        let now = self.now();
        let rfc3339 = |at| humantime::format_rfc3339_seconds(at).to_string();
        StatusDocument {
            schema: STATUS_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: rfc3339(self.started.1),
            at: rfc3339(SystemTime::now()),
            deaf: self.frees.as_ref().err().cloned(),
            lost_events: self.lost,
            file_systems: self.file_systems.iter().map(|managed| managed.status(now)).collect(),
        }
    }
}
