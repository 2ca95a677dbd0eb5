//! All operations of a PostMark run, drawn before it starts.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use trimtab_core::Bytes;

use super::PostmarkOptions;
use crate::workload::shape::footprint;

/// The default number of files fills this part of the space: one quarter.
const PART: u64 = 4;
/// The highest default number of files.
const MOST_FILES: u64 = 20_000;
/// The default number of transactions for each file.
const TRANSACTIONS: u32 = 2;
/// Biases are of this many transactions.
const BIAS: u8 = 10;

/// One file operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Creates a file of this length.
    Create(File, Bytes),
    /// Reads a file.
    Read(File),
    /// Appends this much to a file.
    Append(File, Bytes),
    /// Deletes a file.
    Delete(File),
}

/// A file of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its number, from 1.
    pub number: u32,
    /// The number of its directory, from 0.
    pub directory: u32,
}

/// All operations of a run.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// The operations that create the pool.
    pub create: Vec<Operation>,
    /// The operations of the transactions.
    pub transactions: Vec<Operation>,
    /// The operations that delete the remaining files.
    pub delete: Vec<Operation>,
    /// The most space that files take at a time.
    pub most: Bytes,
}

impl Operation {
    /// Its file.
    pub fn file(&self) -> File {
        match *self {
            Self::Create(file, _) | Self::Read(file) | Self::Append(file, _) | Self::Delete(file) => file,
        }
    }
}

/// The pool while the operations are drawn.
struct Pool<'a> {
    options: &'a PostmarkOptions,
    random: SmallRng,
    live: Vec<(File, Bytes)>,
    most_live: usize,
    created: u32,
    taken: Bytes,
    most: Bytes,
}

impl Plan {
    /// Draws a run from `seed`, on a file system with `space`.
    pub fn new(options: &PostmarkOptions, seed: u64, space: Bytes) -> Self {
        let files = files(options, space);
        let mut pool = Pool {
            options,
            random: SmallRng::seed_from_u64(seed ^ 0x706f_7374_6d61_726b),
            live: Vec::new(),
            most_live: 2 * files as usize,
            created: 0,
            taken: Bytes::ZERO,
            most: Bytes::ZERO,
        };
        let create = (0..files).filter_map(|_| pool.create()).collect();
        let mut transactions = Vec::new();
        for _ in 0..options.transactions.unwrap_or(TRANSACTIONS.saturating_mul(files)) {
            if pool.live.is_empty() {
                break;
            }
            transactions.extend(pool.read_or_append());
            transactions.extend(pool.create_or_delete());
        }
        let delete = pool.live.iter().map(|(file, _)| Operation::Delete(*file)).collect();
        Self { create, transactions, delete, most: pool.most }
    }
}

/// Returns how many files a run on `space` begins with.
pub fn files(options: &PostmarkOptions, space: Bytes) -> u32 {
    let mean = Bytes((options.sizes.start().0 + options.sizes.end().0) / 2);
    let by_space = (space.0 / PART / footprint(mean).0).clamp(1, MOST_FILES) as u32;
    options.files.unwrap_or(by_space)
}

impl Pool<'_> {
    fn create(&mut self) -> Option<Operation> {
        if self.live.len() == self.most_live {
            return None;
        }
        self.created += 1;
        let directory = self.random.random_range(0..self.options.subdirectories.max(1));
        let file = File { number: self.created, directory };
        let (low, high) = (self.options.sizes.start().0, self.options.sizes.end().0);
        let length = Bytes(self.random.random_range(low..high.max(low + 1)));
        self.live.push((file, length));
        self.grow(footprint(length));
        Some(Operation::Create(file, length))
    }

    fn read_or_append(&mut self) -> Option<Operation> {
        let bias = self.options.read_bias?;
        let reads = self.random.random_range(0..BIAS) < bias;
        let at = self.random.random_range(0..self.live.len());
        let (file, length) = self.live[at];
        if reads {
            return Some(Operation::Read(file));
        }
        let left = self.options.sizes.end().0.saturating_sub(length.0);
        if left == 0 {
            return None;
        }
        let more = Bytes(self.random.random_range(1..=left));
        self.live[at].1 += more;
        self.grow(footprint(length + more) - footprint(length));
        Some(Operation::Append(file, more))
    }

    fn create_or_delete(&mut self) -> Option<Operation> {
        let bias = self.options.create_bias?;
        if self.random.random_range(0..BIAS) < bias {
            return self.create();
        }
        let at = self.random.random_range(0..self.live.len());
        let (file, length) = self.live.swap_remove(at);
        self.taken -= footprint(length);
        Some(Operation::Delete(file))
    }

    fn grow(&mut self, by: Bytes) {
        self.taken += by;
        self.most = self.most.max(self.taken);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn plan(options: &str) -> Plan {
        Plan::new(&options.parse().unwrap(), 1, Bytes(400 << 20))
    }

    #[test]
    fn every_operation_is_on_a_file_that_is_there() {
        let plan = plan("files=300,transactions=5000,sizes=500..10000");
        let mut live = HashMap::new();
        let mut most = Bytes::ZERO;
        for operation in plan.create.iter().chain(&plan.transactions).chain(&plan.delete) {
            let number = operation.file().number;
            match *operation {
                Operation::Create(_, length) => assert_eq!(live.insert(number, length), None),
                Operation::Read(_) => assert!(live.contains_key(&number)),
                Operation::Append(_, more) => *live.get_mut(&number).expect("it is there") += more,
                Operation::Delete(_) => assert!(live.remove(&number).is_some()),
            }
            assert!(live.values().all(|length| (Bytes(500)..=Bytes(10_000)).contains(length)));
            assert!(live.len() <= 600);
            most = most.max(live.values().copied().map(footprint).sum());
        }
        assert!(live.is_empty());
        assert_eq!(most, plan.most);
    }

    #[test]
    fn biases_shift_the_mix() {
        let count = |options: &str, is: fn(&Operation) -> bool| {
            let options = format!("files=1000,transactions=2000,{options}");
            plan(&options).transactions.iter().filter(|operation| is(operation)).count()
        };
        let is_read = |operation: &Operation| matches!(operation, Operation::Read(_));
        let is_created = |operation: &Operation| matches!(operation, Operation::Create(..));
        assert_eq!(count("read_bias=10", is_read), 2000);
        assert_eq!(count("read_bias=0", is_read), 0);
        assert!((1300..1500).contains(&count("read_bias=7", is_read)));
        assert_eq!(count("read_bias=-1,create_bias=-1", |_| true), 0);
        assert!((900..1100).contains(&count("", is_created)));
        assert_eq!(count("create_bias=10", is_created), 1000, "at most twice the files at the beginning");
        let without = plan("files=10,transactions=1000,create_bias=0");
        assert_eq!((without.transactions.len() <= 20, without.delete.len()), (true, 0), "no file is left");
    }

    #[test]
    fn a_plan_depends_on_seed_and_space_only() {
        let options = PostmarkOptions::default();
        let draw = |seed, space| Plan::new(&options, seed, Bytes(space));
        assert_eq!(draw(1, 100 << 20), draw(1, 100 << 20));
        assert_ne!(draw(1, 100 << 20), draw(2, 100 << 20));
        assert!(draw(1, 100 << 20).create.len() < draw(1, 200 << 20).create.len());
        for space in [32 << 20, 400 << 20, 64 << 30] {
            let plan = draw(1, space);
            assert!(plan.most < Bytes(space / 2) && plan.create.len() <= 20_000, "{space}");
        }
    }
}
