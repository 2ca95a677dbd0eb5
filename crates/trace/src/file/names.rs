//! The devices and file systems that the names in a trace file stand for.

use std::collections::HashMap;

use trimtab_core::trace::{Comm, EventKind, TraceHeader};

use super::schema::{Column, device_names, file_system_names};
use crate::error::RowError;

/// Numbers for the names in a trace file.
pub(super) struct Names {
    devices: HashMap<String, i64>,
    file_systems: HashMap<String, i64>,
    processes: Vec<Comm>,
    process_numbers: HashMap<Comm, i64>,
}

impl Names {
    pub(super) fn of(header: &TraceHeader) -> Self {
        let numbered = |names: Vec<String>| names.into_iter().zip(0..).collect();
        Self {
            devices: numbered(device_names(header)),
            file_systems: numbered(file_system_names(header)),
            processes: Vec::new(),
            process_numbers: HashMap::new(),
        }
    }

    /// The number of `name`: its place in the header, in [`EventKind::ALL`], or among the processes.
    pub(super) fn resolve(&mut self, column: Column, name: &[u8]) -> Result<i64, RowError> {
        let text = String::from_utf8_lossy(name);
        let (number, problem) = match column {
            Column::Device => (self.devices.get(&*text).copied(), "the file's header doesn't name"),
            Column::FileSystem => (self.file_systems.get(&*text).copied(), "the file's header doesn't name"),
            Column::Kind => (text.parse().ok().map(|kind: EventKind| kind as i64), "is no kind of event"),
            _ => (Some(self.process_number(Comm::new(name))), "is no process"),
        };
        number.ok_or_else(|| RowError::Name { column: column.name(), name: text.into_owned(), problem })
    }

    /// The process of a number.
    pub(super) fn process(&self, number: i64) -> Comm {
        usize::try_from(number)
            .ok()
            .and_then(|number| self.processes.get(number))
            .copied()
            .unwrap_or_default()
    }

    fn process_number(&mut self, process: Comm) -> i64 {
        *self.process_numbers.entry(process).or_insert_with(|| {
            self.processes.push(process);
            self.processes.len() as i64 - 1
        })
    }
}
