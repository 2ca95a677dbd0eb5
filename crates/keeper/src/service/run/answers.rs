//! Responses to clients.

use std::time::{Instant, SystemTime};

use trimtab_core::ExtentSet;
use trimtab_core::document::{STATUS_SCHEMA, StatusDocument};
use trimtab_core::error::chain;
use trimtab_linux::memory;

use super::Service;
use crate::service::control::{Piece, Request, Response};
use crate::service::managed::{LeaseError, ManagedFileSystem};
use crate::service::server::{ClientEvent, ClientId};
use crate::service::survey::ThinPool;
use crate::service::{http, metrics};

impl Service {
    /// Accepts and serves clients.
    pub(super) fn serve_clients(&mut self) {
        // Accepts only once: new clients may connect as fast as these are served.
        self.server.accept_clients(Instant::now());
        loop {
            let events = self.server.serve(Instant::now());
            if events.is_empty() {
                break;
            }
            for (client, event) in events {
                match event {
                    ClientEvent::Request(request) => {
                        let response = self.answer(client, request);
                        self.server.answer(client, &response);
                    }
                    ClientEvent::Status => {
                        // The document holds only text and numbers, so it can always be written as JSON.
                        let status = serde_json::to_vec(&self.status()).unwrap_or_default();
                        self.server.send_last(client, status);
                    }
                    ClientEvent::Metrics => {
                        let body = metrics::render(&self.status(), true);
                        self.server.send_last(client, http::metrics(&body));
                    }
                    ClientEvent::Closed => self.end_lease(client, None),
                }
            }
        }
        if self.server.take_large_buffer_freed() {
            memory::give_back();
        }
    }

    fn answer(&mut self, client: ClientId, request: Request) -> Response {
        let now = self.now();
        match request {
            Request::Status => Response::Status(self.status()),
            Request::Reload => match self.reload() {
                Ok(()) => Response::Done,
                Err(error) => Response::Refused(chain(&error)),
            },
            Request::ReadPauses => {
                let mut all = std::mem::take(&mut self.file_systems);
                self.apply_pauses(&mut all, now);
                self.file_systems = all;
                let is_trimming =
                    |managed: &&ManagedFileSystem| managed.is_paused(now) && managed.is_trimming();
                Response::Trimming(self.file_systems.iter().filter(is_trimming).count())
            }
            Request::TakePending { mount } => {
                // Includes what was freed a moment ago.
                self.read_at = Some(now);
                self.read_frees();
                let wanted = |managed: &&mut ManagedFileSystem| managed.found.targets.contains(&mount);
                let lease = match self.file_systems.iter_mut().find(wanted) {
                    Some(managed) => managed.lease_pending(client, now),
                    None => Err(LeaseError::NotMounted),
                };
                match lease {
                    Ok(pending) => Response::Pending(pending),
                    Err(reason) => Response::Refused(format!("{}: {reason}", mount.display())),
                }
            }
            Request::GiveBack { left } => {
                self.end_lease(client, Some(left.into_iter().filter_map(Piece::extent).collect()));
                Response::Done
            }
        }
    }

    fn end_lease(&mut self, client: ClientId, left: Option<ExtentSet>) {
        for managed in &mut self.file_systems {
            managed.end_lease(client, left.as_ref());
        }
    }

    fn status(&mut self) -> StatusDocument {
        let now = self.now();
        let pools = ThinPool::below(self.file_systems.iter().map(ManagedFileSystem::storage));
        // A pool whose drives hang does not answer.
        let pools = if pools.is_empty() {
            Vec::new()
        } else {
            let ask = move || pools.iter().filter_map(ThinPool::status).collect();
            self.pools.run(ask).unwrap_or_default()
        };
        let managed = self.file_systems.iter().map(|managed| managed.status(now));
        let new = self.new.iter().map(|new| new.status(&self.context, &self.config, now));
        let mut file_systems: Vec<_> = managed.chain(new).collect();
        file_systems.sort_by(|one, other| one.mount.cmp(&other.mount));
        let rfc3339 = |at| humantime::format_rfc3339_seconds(at).to_string();
        StatusDocument {
            schema: STATUS_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started: rfc3339(self.started.1),
            at: rfc3339(SystemTime::now()),
            frees_unavailable: self.frees.as_ref().err().map(|error| chain(error.as_ref())),
            lost_events: self.lost,
            file_systems,
            pools,
        }
    }
}
