//! A model that was filled by its blocks is held to one whose pages were all written.

use proptest::prelude::{
    Just, ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use proptest::test_runner::TestCaseError;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::Pages;
use trimtab_core::profile::{Profile, Sourced, Wear};

use super::*;
use crate::geometry::FtlConfig;
use crate::mapping::wear::Levelling;
use crate::mapping::{NONE, WearConfig};

/// Writes and discards after the fill.
const STEPS: usize = 3000;

/// The shape of a model, and how its blocks wear out.
#[derive(Debug, Clone)]
struct Shape {
    config: FtlConfig,
    /// By how much the dense numbers of a block are more than its pages.
    gap: u32,
    endurance: Option<u32>,
    level_at: Option<u32>,
}

impl Shape {
    fn model(&self) -> Ftl {
        let sourced = |value| Sourced { value, source: "a test".to_owned() };
        let mut profile = Profile::named("nvme-tlc").unwrap();
        profile.wear = Some(Wear {
            endurance: self.endurance.map(sourced),
            variation: Some(Sourced { value: 0.5, source: "a test".to_owned() }),
            level_at: self.level_at.map(sourced),
            ..Wear::default()
        });
        let stride = self.config.pages_per_block + self.gap;
        Ftl::of_drive(&self.config, stride, None, WearConfig::of_drive(&profile)).unwrap()
    }
}

fn policy() -> impl Strategy<Value = GcPolicy> {
    prop_oneof![
        Just(GcPolicy::Greedy),
        Just(GcPolicy::Fifo),
        Just(GcPolicy::CostBenefit),
        (1..5u32).prop_map(GcPolicy::DChoices),
    ]
}

fn shape() -> impl Strategy<Value = Shape> {
    let numbers = (1..6000u64, 1..150u32, 1..4u32, 0..6u32, prop::num::u64::ANY);
    let wear = (prop::option::of(1..6u32), prop::option::of(1..5u32));
    (policy(), numbers, wear, 0..3u32).prop_map(|(policy, numbers, (endurance, level_at), gap)| {
        let (logical, pages_per_block, reserve_blocks, spare, seed) = numbers;
        let mut config = FtlConfig {
            logical: Pages(logical),
            map_entries: None,
            blocks: 0,
            pages_per_block,
            reserve_blocks,
            streams: 1,
            policy,
            seed,
        };
        config.blocks = (logical as u32 + 1).div_ceil(pages_per_block) + config.set_aside() + spare;
        Shape { config, gap, endurance, level_at }
    })
}

fn assert_equal(one: &Ftl, other: &Ftl) -> Result<(), TestCaseError> {
    prop_assert_eq!(one.totals, other.totals);
    prop_assert_eq!([one.mapped, one.unfilled], [other.mapped, other.unfilled]);
    for page in 0..one.addresses.len() {
        prop_assert_eq!(one.addresses.get(page), other.addresses.get(page), "page {}", page);
    }
    prop_assert!(one.valid == other.valid);
    prop_assert_eq!(&one.blocks, &other.blocks);
    prop_assert_eq!(&one.frontiers, &other.frontiers);
    prop_assert_eq!(
        one.levelling.as_ref().map(Levelling::least),
        other.levelling.as_ref().map(Levelling::least)
    );
    for from in (0..=one.addresses.len()).step_by(97) {
        let place = Pages(from.into());
        prop_assert_eq!(one.mapped_from(place), other.mapped_from(place), "from {}", from);
        let naive = (from..one.addresses.len()).chain(0..from);
        let naive = naive.map(u64::from).find(|page| one.is_mapped(Pages(*page)));
        prop_assert_eq!(one.mapped_from(place), naive.map(Pages), "from {}", from);
    }
    one.assert_sound();
    other.assert_sound();
    Ok(())
}

/// Writes and discards pages and runs of pages at random, some of them of all pages.
fn use_at_random(ftl: &mut Ftl, seed: u64, steps: usize) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let pages = ftl.config.logical.0 as u32;
    for _ in 0..steps {
        let first = rng.random_range(0..pages);
        let most = if rng.random_range(0..200) == 0 { pages } else { 40 };
        let count = rng.random_range(0..=most.min(pages - first));
        match rng.random_range(0..8) {
            0 | 1 => drop(ftl.discard(first, count)),
            2 => ftl.write_journal(&mut Untimed),
            3 => ftl.write(0, first, count, &mut Untimed),
            _ => ftl.write_each(0, &[first, pages - 1 - first], &mut Untimed),
        }
    }
    ftl.discard(0, pages / 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn filled_model_equals_one_whose_pages_were_written(shape in shape(), seed in prop::num::u64::ANY) {
        let (mut filled, mut written) = (shape.model(), shape.model());
        let draws = matches!(shape.config.policy, GcPolicy::DChoices(_));
        prop_assert_eq!(filled.fill_twice(), !draws && shape.level_at != Some(1));
        let pages = shape.config.logical.0 as u32;
        if filled.totals == Totals::default() {
            (0..2).for_each(|_| filled.write(0, 0, pages, &mut Untimed));
        }
        (0..2).for_each(|_| written.write(0, 0, pages, &mut Untimed));
        assert_equal(&filled, &written)?;
        for steps in [20, STEPS] {
            use_at_random(&mut filled, seed, steps);
            use_at_random(&mut written, seed, steps);
            assert_equal(&filled, &written)?;
        }
        prop_assert!(!filled.fill_twice(), "it is not new");
    }
}

#[test]
fn discard_of_a_filled_model_leaves_no_data() {
    let mut config = FtlConfig {
        logical: Pages(100_000),
        map_entries: None,
        blocks: 0,
        pages_per_block: 1023,
        reserve_blocks: 4,
        streams: 1,
        policy: GcPolicy::Greedy,
        seed: 0,
    };
    config.blocks = 110 + config.set_aside();
    let mut ftl = Ftl::of_drive(&config, 1024, None, WearConfig::default()).unwrap();
    assert!(ftl.fill_twice());
    assert_eq!(ftl.discard(0, 100_000), Pages(100_000));
    assert_eq!(ftl.mapped_from(Pages::ZERO), None);
    assert!((0..100_000).all(|page| ftl.addresses.get(page) == NONE));
    ftl.assert_sound();
}
