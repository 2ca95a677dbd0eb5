//! A small drive keeps the spare of the whole one, and amplifies random writes as much.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use trimtab_core::profile::{MapCache, Profile, Sourced, Wear, builtin};
use trimtab_core::{Bytes, Pages};
use trimtab_ftl::{Device, Ftl, FtlConfig, GeometryError, Untimed};

const MIB: u64 = 1 << 20;

fn sourced<T>(value: T) -> Sourced<T> {
    Sourced { value, source: "a test".to_owned() }
}

/// The effective spare of an endless drive: its pages of data, and of the map that lies on its flash, beside those
/// of the over-provisioned size.
fn whole(profile: &Profile, bad: f64) -> f64 {
    let entries = |cache: &MapCache| cache.entries(profile.geometry.mapping_page.value);
    let map = profile.map_cache.as_ref().map_or(0.0, |cache| 1.0 / f64::from(entries(cache)));
    1.0 - (1.0 + map) / ((1.0 + profile.geometry.over_provisioning.value) * (1.0 - bad))
}

#[test]
fn effective_spare_is_that_of_the_whole_drive_at_every_size() {
    for mut profile in builtin().unwrap() {
        for bad in [0.0, 0.02] {
            profile.wear = Some(Wear { bad_blocks: Some(sourced(bad)), ..Wear::default() });
            let whole = whole(&profile, bad);
            for mib in [320, 512, 1 << 10, 2 << 10, 16 << 10] {
                let config = FtlConfig::of_drive(&profile, Bytes(mib * MIB)).unwrap();
                let (name, spare) = (&profile.name, config.effective_spare());
                // Blocks have whole pages: up to half a page is lost or gained in each of 500 and more.
                assert!((spare - whole).abs() < 0.001, "{name} of {mib} MiB: {spare}, not {whole}");
                let erase_block =
                    profile.geometry.erase_block.value.0 / profile.geometry.mapping_page.value.0;
                let smaller = 1.0 - f64::from(config.pages_per_block) / erase_block as f64;
                let most = 1.0 / f64::from(config.data_blocks()) + 0.5 / erase_block as f64;
                assert!((0.0..most).contains(&smaller), "{name} of {mib} MiB: {smaller}");
            }
        }
    }
}

#[test]
fn every_profile_makes_a_drive_of_10_tib_and_refuses_one_of_16() {
    for profile in builtin().unwrap() {
        let drive = Device::new(&profile, Bytes(10 << 40)).unwrap();
        assert_eq!(drive.mapped(), Bytes::ZERO);
        let refused = Device::new(&profile, Bytes(16 << 40)).err();
        assert!(matches!(refused, Some(GeometryError::TooLarge { .. })), "{}: {refused:?}", profile.name);
    }
}

/// The write amplification of random writes of single pages in the steady state.
fn random_writes(profile: &Profile, size: Bytes) -> f64 {
    let mut config = FtlConfig::of_drive(profile, size).unwrap();
    if let Some(entries) = config.map_entries.take() {
        // The map is data that is written at random, too, and needs no open blocks of its own.
        config.blocks -= 2;
        config.logical = config.logical + Pages(config.logical.0.div_ceil(entries.into()));
    }
    let pages = config.logical.0 as u32;
    let mut ftl = Ftl::new(&config).unwrap();
    ftl.write(0, 0, pages, &mut Untimed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut write = |ftl: &mut Ftl, count: u32| {
        (0..count).for_each(|_| ftl.write(0, rng.random_range(0..pages), 1, &mut Untimed));
        ftl.totals()
    };
    let before = write(&mut ftl, pages);
    let after = write(&mut ftl, pages);
    (after.programmed() - before.programmed()) as f64 / (after.host - before.host) as f64
}

#[test]
fn random_writes_amplify_alike_on_drives_of_500_blocks_and_more() {
    let mut seen = Vec::new();
    for mut profile in builtin().unwrap() {
        // Less to compute than with larger blocks.
        profile.geometry.erase_block.value = Bytes(2 << 20);
        let geometry = (profile.geometry.over_provisioning.value, profile.map_cache.is_some());
        if seen.contains(&geometry) {
            continue;
        }
        seen.push(geometry);
        let size = |blocks| Bytes(profile.geometry.erase_block.value.0 * blocks);
        let [small, large] = [500, 1000].map(|blocks| random_writes(&profile, size(blocks)));
        let error = small / large - 1.0;
        assert!(error.abs() < 0.02, "{}: {small} at 500 blocks, {large} at 1000", profile.name);
    }
}
