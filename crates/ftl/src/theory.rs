//! Closed forms for the write amplification of random writes, the truth that the model is held to.
//! `spare` is the effective spare factor S = 1 - U / T throughout.

use trimtab_core::profile::GcPolicy;

/// Halvings of an interval until only rounding is left.
const HALVINGS: u32 = 64;

/// The steady-state write amplification under `policy`, where a closed form exists.
pub fn write_amplification(policy: GcPolicy, spare: f64, pages_per_block: u32) -> Option<f64> {
    match policy {
        GcPolicy::Greedy => Some(greedy(spare, pages_per_block)),
        GcPolicy::Fifo => Some(fifo(spare)),
        GcPolicy::DChoices(choices) => Some(d_choices(spare, pages_per_block, choices)),
        GcPolicy::CostBenefit => None,
    }
}

/// FIFO cleaning: A = a / (a + W0(-a e^-a)) with a = 1 / (1 - S).
///
/// P. Desnoyers, "Analytic Models of SSD Write Performance", ACM Transactions on Storage 10(2),
/// 2014.
pub fn fifo(spare: f64) -> f64 {
    lru_cleaning(1.0 / (1.0 - spare))
}

/// FIFO cleaning where the fraction `writes` of the writes goes to the fraction `space` of the data, both parts in the
/// same blocks.
///
/// While the drive is written once, the host writes a pages for each page of data, 1 / (1 - S) = a A. A page of a part
/// that takes the fraction r of the writes and f of the data is still valid then with e^(-a r / f), so that each of
/// its writes is programmed 1 / (1 - e^(-a r / f)) times; A is the mean of that over both parts.
///
/// P. Desnoyers, as for [`fifo`], for LRU cleaning of hot and cold data that are not separated.
pub fn fifo_hot_cold(spare: f64, writes: f64, space: f64) -> f64 {
    let programmed = |share: f64, of: f64, round: f64| share / -(-round * share / of).exp_m1();
    let amplification =
        |round: f64| programmed(writes, space, round) + programmed(1.0 - writes, 1.0 - space, round);
    let longest = 1.0 / (1.0 - spare);
    let round = bisect(0.0, longest, |round| round * amplification(round) < longest);
    amplification(round)
}

/// Greedy cleaning with blocks of `pages_per_block` pages: the FIFO form at `k a`, over `k`, with
/// k = 1 + 1 / (2 Np); at least 1, which it would fall below where nearly all is spare.
///
/// P. Desnoyers, as for [`fifo`].
pub fn greedy(spare: f64, pages_per_block: u32) -> f64 {
    let k = 1.0 + 0.5 / f64::from(pages_per_block);
    (lru_cleaning(k / (1.0 - spare)) / k).max(1.0)
}

/// The spare factor at which [`greedy`] cleaning amplifies writes by `amplification`, above 1.
pub fn greedy_spare(amplification: f64, pages_per_block: u32) -> f64 {
    bisect(0.0, 1.0, |spare| greedy(spare, pages_per_block) > amplification)
}

/// a / (a + W0(-a e^-a)). With v = -W0, v is the root of v e^-v = a e^-a in 0..1.
fn lru_cleaning(a: f64) -> f64 {
    let v = bisect(0.0, 1.0, |v| v * (-v).exp() < a * (-a).exp());
    a / (a - v)
}

/// Cleaning the block with the fewest valid pages among `choices` drawn at random.
///
/// B. Van Houdt, "A mean field model for a class of garbage collection algorithms in flash-based
/// solid state drives", SIGMETRICS 2013. In the fixed point of its drift, with Q(j) the fraction of
/// blocks with j or more valid pages and L the rate at which a valid page becomes invalid for each
/// block cleaned, the flow through every level balances, 1 - Q(j)^d = L j (Q(j) - Q(j + 1)); the
/// mean of j is (1 - S) Np; and A = 1 / (L (1 - S)).
pub fn d_choices(spare: f64, pages_per_block: u32, choices: u32) -> f64 {
    let used = 1.0 - spare;
    let mean = used * f64::from(pages_per_block);
    let rate = bisect(0.0, 1.0 / used, |rate| mean_valid(rate, pages_per_block, choices) > mean);
    1.0 / (rate * used)
}

/// The mean number of valid pages in a block when each is lost at `rate`: the sum of Q(j).
fn mean_valid(rate: f64, pages_per_block: u32, choices: u32) -> f64 {
    let d = f64::from(choices);
    let mut above = 0.0;
    let mut sum = 0.0;
    for j in (1..=pages_per_block).rev() {
        let flow = rate * f64::from(j);
        above = level(d, flow, 1.0 + flow * above);
        sum += above;
    }
    sum
}

/// The root of q^d + flow q = total, by Newton's method from above, where it is convex.
fn level(d: f64, flow: f64, total: f64) -> f64 {
    let mut q: f64 = 1.0;
    for _ in 0..HALVINGS {
        let step = (q.powf(d) + flow * q - total) / (d * q.powf(d - 1.0) + flow);
        q -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    q
}

/// The fraction of pages in use when each request is a trim of a page in use with probability
/// `trims`, else a write of any page: s = (1 - 2q) / (1 - q).
///
/// T. Frankie, G. Hughes and K. Kreutz-Delgado, "A Mathematical Model of the Trim Command in
/// NAND-Flash SSDs", ACM Southeast 2012.
pub fn in_use(trims: f64) -> f64 {
    (1.0 - 2.0 * trims) / (1.0 - trims)
}

/// The spare factor that trims make of `spare`: S_eff = 1 - s (1 - S), with s of [`in_use`].
///
/// T. Frankie, G. Hughes and K. Kreutz-Delgado, as for [`in_use`].
pub fn spare_with_trims(spare: f64, trims: f64) -> f64 {
    1.0 - in_use(trims) * (1.0 - spare)
}

/// Where `below` turns from true to false between `low` and `high`.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(left: f64, right: f64, tolerance: f64) {
        assert!((left - right).abs() <= tolerance * right, "{left} is not {right}");
    }

    #[test]
    fn closed_forms_give_known_values() {
        assert_near(greedy(0.127, 256), 4.059, 2e-4);
        assert_near(greedy(0.10, 64), 4.816, 2e-4);
        assert_near(in_use(0.1), 0.8 / 0.9, 1e-12);
        assert_near(spare_with_trims(0.1, 0.0), 0.1, 1e-12);
    }

    #[test]
    fn a_spare_factor_is_found_by_its_amplification() {
        for spare in [0.02, 0.1, 0.127, 0.5] {
            assert_near(greedy_spare(greedy(spare, 256), 256), spare, 1e-9);
        }
    }

    #[test]
    fn one_choice_cleans_blindly() {
        for spare in [0.05, 0.127, 0.3] {
            assert_near(d_choices(spare, 64, 1), 1.0 / spare, 1e-9);
        }
    }

    #[test]
    fn more_choices_come_nearer_to_greedy() {
        let amplification = [1, 2, 4, 10, 1000].map(|choices| d_choices(0.127, 256, choices));
        assert!(amplification.is_sorted_by(|left, right| left > right), "{amplification:?}");
        assert_near(amplification[4], greedy(0.127, 256), 5e-3);
    }

    #[test]
    fn hot_and_cold_data_that_are_written_alike_are_uniform() {
        for spare in [0.02, 0.127, 0.5] {
            assert_near(fifo_hot_cold(spare, 0.3, 0.3), fifo(spare), 1e-9);
            assert!(fifo_hot_cold(spare, 0.9, 0.1) > fifo(spare), "cold data are copied each round");
        }
    }

    #[test]
    fn fifo_solves_its_equation() {
        for spare in [0.02, 0.127, 0.5] {
            let (amplification, a) = (fifo(spare), 1.0 / (1.0 - spare));
            let valid = 1.0 - 1.0 / amplification;
            assert_near((-a / amplification).exp(), valid, 1e-9);
        }
    }
}
