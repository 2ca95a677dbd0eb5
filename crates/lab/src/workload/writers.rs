//! A workload that is divided among several writers, who work at the same time.

use trimtab_core::document::WorkloadDescription;

use super::Workload;
use crate::error::LabError;
use crate::stage::Stage;

/// The parts of a workload, one for each writer.
pub struct WritersWorkload {
    whole: Box<dyn Workload>,
    parts: Vec<Box<dyn Workload>>,
    seed: u64,
}

impl WritersWorkload {
    /// The workload `whole`, done as `parts`, with contents from `seed`.
    pub fn new(whole: Box<dyn Workload>, parts: Vec<Box<dyn Workload>>, seed: u64) -> Self {
        Self { whole, parts, seed }
    }
}

impl Workload for WritersWorkload {
    fn description(&self) -> WorkloadDescription {
        self.whole.description()
    }

    fn names_its_pauses(&self) -> bool {
        self.whole.names_its_pauses()
    }

    fn unmounts(&self) -> bool {
        self.whole.unmounts()
    }

    fn run(&self, stage: &mut Stage) -> Result<(), LabError> {
        stage.writers(&self.parts, self.seed)
    }
}
