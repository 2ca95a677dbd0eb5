//! The mapping is held to a naive map, under every way of garbage collection.

use proptest::prelude::{Just, ProptestConfig, Strategy, prop, prop_assert_eq, prop_oneof, proptest};
use trimtab_core::Pages;
use trimtab_core::profile::GcPolicy;
use trimtab_ftl::{Ftl, FtlConfig, Untimed};

const LOGICAL: u32 = 200;

#[derive(Debug, Clone)]
enum Step {
    Write { stream: u32, first: u32, count: u32 },
    WriteEach { stream: u32, pages: Vec<u32> },
    Discard { first: u32, count: u32 },
    Journal,
}

fn run() -> impl Strategy<Value = (u32, u32)> {
    (0..LOGICAL).prop_flat_map(|first| (first..=first, 0..=(LOGICAL - first).min(60)))
}

fn step() -> impl Strategy<Value = Step> {
    let pages = prop::collection::vec(0..LOGICAL, 0..60);
    prop_oneof![
        (0..2u32, run()).prop_map(|(stream, (first, count))| Step::Write { stream, first, count }),
        (0..2u32, pages).prop_map(|(stream, pages)| Step::WriteEach { stream, pages }),
        run().prop_map(|(first, count)| Step::Discard { first, count }),
        Just(Step::Journal),
    ]
}

fn policy() -> impl Strategy<Value = GcPolicy> {
    prop_oneof![
        Just(GcPolicy::Greedy),
        Just(GcPolicy::Fifo),
        (1..5u32).prop_map(GcPolicy::DChoices),
        Just(GcPolicy::CostBenefit),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn ftl_matches_a_naive_map(
        policy in policy(),
        pages_per_block in 1..80u32,
        reserve_blocks in 1..4u32,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let config = FtlConfig {
            logical: Pages(LOGICAL.into()),
            map_entries: None,
            blocks: LOGICAL.div_ceil(pages_per_block) + 1 + reserve_blocks + 4,
            pages_per_block,
            reserve_blocks,
            streams: 2,
            policy,
            seed: 1,
        };
        let mut ftl = Ftl::new(&config).unwrap();
        let mut naive = [false; LOGICAL as usize];
        let mut host_pages = 0;
        for step in steps {
            match step {
                Step::Write { stream, first, count } => {
                    ftl.write(stream, first, count, &mut Untimed);
                    naive[first as usize..][..count as usize].fill(true);
                    host_pages += u64::from(count);
                }
                Step::WriteEach { stream, pages } => {
                    ftl.write_each(stream, &pages, &mut Untimed);
                    pages.iter().for_each(|page| naive[*page as usize] = true);
                    host_pages += pages.len() as u64;
                }
                Step::Discard { first, count } => {
                    ftl.discard(first, count);
                    naive[first as usize..][..count as usize].fill(false);
                }
                Step::Journal => ftl.write_journal(&mut Untimed),
            }
            ftl.assert_sound();
            let mapped: Vec<_> = (0..LOGICAL).map(|page| ftl.is_mapped(Pages(page.into()))).collect();
            prop_assert_eq!(&mapped[..], &naive[..]);
        }
        for from in 0..=LOGICAL {
            let found = (from..LOGICAL).chain(0..from).find(|page| naive[*page as usize]);
            prop_assert_eq!(ftl.mapped_from(Pages(from.into())), found.map(|page| Pages(page.into())));
        }
        prop_assert_eq!(ftl.totals().host, host_pages);
    }
}
