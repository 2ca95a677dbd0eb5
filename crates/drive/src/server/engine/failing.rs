//! A flash model that panics takes no data with it.

use std::io;
use std::path::PathBuf;

use trimtab_core::profile::{DiscardedReads, Profile};
use trimtab_core::{Bytes, Extent, Pages};
use trimtab_ftl::{Command, Device, Op};

use super::*;
use crate::protocol::{Clock, Room};

const SIZE: Bytes = Bytes(512 << 20);
const PAGE: Bytes = Bytes(4096);

/// A model that works until it gets a command of one kind.
struct Panics {
    at: Op,
    model: Model,
}

impl Emulated for Panics {
    fn start(&mut self, queue_depth: u32, path: PathTimes) {
        self.model.start(queue_depth, path);
    }

    fn submit(&mut self, command: Command) -> Option<Instant> {
        assert_ne!(command.op, self.at, "a fault");
        self.model.submit(command)
    }

    fn honoured(&self, extent: Extent) -> Extent {
        self.model.honoured(extent)
    }

    fn is_mapped(&self, page: Pages) -> bool {
        self.model.is_mapped(page)
    }

    fn mapped_from(&self, page: Pages) -> Option<Pages> {
        self.model.mapped_from(page)
    }

    fn figures(&self) -> Figures {
        self.model.figures()
    }
}

/// A drive with four written pages, whose model panics at the next `at`.
fn engine(at: Op, reads: DiscardedReads, data: Option<PathBuf>) -> Engine {
    let mut profile = Profile::named("nvme-tlc").unwrap();
    profile.discard.reads.value = reads;
    let spec = Spec {
        profile,
        size: SIZE,
        preconditioned: false,
        clock: Clock::Model,
        data,
        owned: false,
        room: Room::default(),
    };
    let model = Model::new(Device::new(&spec.profile, SIZE).unwrap(), spec.clock);
    let engine = Engine::on(Box::new(model), &spec).unwrap();
    engine.start(1, PathTimes::default()).unwrap();
    engine.write(RequestNumber::default(), Bytes::ZERO, &content()).unwrap();
    let model = Model::new(Device::new(&spec.profile, SIZE).unwrap(), spec.clock);
    engine.model().model = Box::new(Panics { at, model });
    engine
}

fn content() -> Vec<u8> {
    (0..4 * PAGE.0).map(|at| (at / 512) as u8 + 1).collect()
}

/// Has the drive do a command of one page.
fn attempt(engine: &Engine, op: Op) -> io::Result<()> {
    let extent = Extent::at(Bytes::ZERO, PAGE);
    match op {
        Op::Read => engine.read(RequestNumber::default(), Bytes::ZERO, &mut [0; 4096]).map(drop),
        Op::Write => engine.write(RequestNumber::default(), Bytes::ZERO, &[255; 4096]).map(drop),
        Op::Discard => Ok(engine.discard(RequestNumber::default(), extent).map(drop)?),
        Op::Flush => Ok(engine.flush(RequestNumber::default()).map(drop)?),
    }
}

#[test]
fn data_outlives_a_model_that_panics() {
    let directory = tempfile::tempdir().unwrap();
    for at in [Op::Read, Op::Write, Op::Discard, Op::Flush] {
        for (reads, file) in [
            (DiscardedReads::Other, None),
            (DiscardedReads::Garbage, Some(directory.path().join(format!("{at:?}")))),
        ] {
            let engine = engine(at, reads, file.clone());
            assert!(engine.figures().is_ok());
            assert_eq!(attempt(&engine, at).is_ok(), at == Op::Read, "{at:?}");
            for op in [Op::Write, Op::Discard, Op::Flush] {
                let error = attempt(&engine, op).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()), "{op:?} after {at:?}");
            }
            let mut found = vec![0; content().len()];
            assert_eq!(engine.read(RequestNumber::default(), Bytes::ZERO, &mut found).unwrap(), None);
            assert!(found == content(), "{at:?} {reads:?}");
            let failed = engine.figures().err().unwrap().to_string();
            assert!(failed.contains("a fault") && failed.contains("reads give what is stored"), "{failed}");
            drop(engine);
            if let Some(file) = file {
                assert!(std::fs::read(file).unwrap()[..found.len()] == found, "{at:?} {reads:?}");
            }
        }
    }
}
