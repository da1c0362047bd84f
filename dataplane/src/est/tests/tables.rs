//! The filter against worked examples, and against what a kernel showed.

use crate::est::filter::{CONNS, PACKETS, bytes_shown, packets_shown, step};

const BYTES: u32 = PACKETS[2];

/// States after each pass, from state `rate`, of periods in which so much was counted.
fn states(mut rate: u64, shift: u32, deltas: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let mut sum = 0u64;
    let mut pass = |delta| {
        let last = sum;
        sum += delta;
        rate = step(rate, last, sum, shift);
        rate
    };
    deltas.into_iter().map(&mut pass).collect()
}

fn packets(rate: u64, deltas: impl IntoIterator<Item = u64>) -> Vec<u64> {
    states(rate, CONNS, deltas).into_iter().map(packets_shown).collect()
}

fn bytes(rate: u64, deltas: impl IntoIterator<Item = u64>) -> Vec<u64> {
    states(rate, BYTES, deltas).into_iter().map(bytes_shown).collect()
}

fn always(delta: u64) -> impl Iterator<Item = u64> {
    std::iter::repeat_n(delta, 100)
}

fn once(delta: u64) -> impl Iterator<Item = u64> {
    std::iter::once(delta).chain(always(0))
}

#[track_caller]
fn starts(series: &[u64], with: &[u64]) {
    assert_eq!(&series[..with.len()], with);
}

/// Steady 1000 packets a second, reached from below.
const STEADY: u64 = 1_023_997;

#[test]
fn a_step_up() {
    let raw = states(0, CONNS, always(2000));
    let at = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 34, 40, 50, 60, 80].map(|s| s / 2 - 1);
    assert_eq!(
        at.map(|i| raw[i]),
        [
            256000, 448000, 592000, 700000, 781000, 841750, 887312, 921484, 947113, 966334, 980750, 991562,
            999671, 1005753, 1016301, 1020751, 1023228, 1023815, 1023988
        ]
    );
    assert_eq!(
        at.map(|i| packets_shown(raw[i])),
        [250, 437, 578, 684, 763, 822, 867, 900, 925, 944, 958, 968, 976, 982, 992, 997, 999, 1000, 1000]
    );
    assert_eq!(raw[99], STEADY);
}

#[test]
fn b_input_stops() {
    let raw = states(STEADY, CONNS, always(0));
    let shown: Vec<u64> = raw.iter().copied().map(packets_shown).collect();
    starts(&shown, &[750, 562, 422, 316, 237, 178, 133, 100, 75, 56, 42, 32, 24, 18, 13, 10]);
    assert_eq!(shown.iter().position(|&s| s == 0), Some(26));
    assert_eq!(raw.iter().position(|&r| r == 0), Some(45));
}

#[test]
fn c_a_million_on_and_off() {
    let raw = states(0, CONNS, always(2_000_000));
    let on: Vec<u64> = raw.iter().copied().map(packets_shown).collect();
    let up = [250000, 437500, 578125, 683594, 762695, 822021, 866516, 899887, 924915, 943686, 957765, 968324];
    starts(&on, &up);
    assert_eq!(on.iter().position(|&s| s == 1_000_000), Some(50));
    let raw = states(raw[99], CONNS, always(0));
    let off: Vec<u64> = raw.iter().copied().map(packets_shown).collect();
    starts(&off, &[750000, 562500, 421875, 316406, 237305, 177979, 133484, 100113, 75085, 56314]);
    assert_eq!(off.iter().position(|&s| s == 0), Some(50));
    assert_eq!(raw.iter().position(|&r| r == 0), Some(69));
}

#[test]
fn d_ten_gigabits() {
    let raw = states(0, BYTES, always(2_500_000_000));
    let at = [1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40, 60, 80];
    assert_eq!(
        at.map(|pass| bytes_shown(raw[pass - 1])),
        [
            312500000, 546875000, 722656250, 854492187, 953369141, 1027526855, 1124858856, 1179608107,
            1233295674, 1246035985, 1249776772, 1249987429, 1249999960, 1250000000
        ]
    );
    assert_eq!(raw[99], 39_999_999_997);
    let raw = states(raw[99], BYTES, always(0));
    let off: Vec<u64> = raw.iter().copied().map(bytes_shown).collect();
    starts(&off, &[937500000, 703125000, 527343750, 395507812, 296630859, 222473144]);
    assert_eq!(off.iter().position(|&s| s == 0), Some(74));
    assert_eq!(raw.iter().position(|&r| r == 0), Some(82));
}

#[test]
fn e_tiny_rates() {
    starts(&states(0, CONNS, always(2)), &[256, 448, 592, 700, 781, 841, 886, 920]);
    for (pps, shown, steady) in [
        (1, &[0, 0, 1, 1, 1][..], 1021),
        (2, &[0, 1, 1, 1, 2, 2], 2045),
        (3, &[1, 1, 2, 2, 2, 2, 3], 3069),
        (5, &[1, 2, 3, 3, 4, 4, 4, 4, 5], 5117),
    ] {
        starts(&packets(0, always(2 * pps)), shown);
        assert_eq!(states(0, CONNS, always(2 * pps))[99], steady);
    }
    starts(&packets(0, once(100)), &[12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1, 0]);
    starts(&packets(0, once(8)), &[1, 1, 1, 0]);
    starts(&packets(0, once(7)), &[1, 1, 0]);
    for burst in 1..=4 {
        assert!(packets(0, once(burst)).iter().all(|&shown| shown == 0), "{burst}");
    }
    starts(&bytes(0, always(84)), &[10, 18, 24, 29, 32, 34, 36, 38, 39, 40]);
    assert_eq!(states(0, BYTES, always(84))[99], 1341);
    // One packet each period is half a packet a second: never shown.
    assert_eq!(states(0, CONNS, always(1))[99], 509);
}

#[test]
fn f_resume_with_spike() {
    for (pause, shown, back) in [
        (10, [2000, 1750, 1562, 1422, 1316, 1237, 1178, 1133, 1100, 1075], 17),
        (60, [8250, 6437, 5078, 4059, 3294, 2720, 2290, 1968, 1726, 1544], 24),
        (600, [75750, 57062, 43047, 32535, 24651, 18739, 14304, 10978, 8483, 6613], 32),
    ] {
        let series = packets(STEADY, std::iter::once(1000 * pause).chain(always(2000)));
        starts(&series, &shown);
        assert_eq!(series.iter().position(|&s| s <= 1010).map(|i| i + 1), Some(back), "{pause} s");
    }
}

#[test]
fn h_i_first_periods_that_are_not_whole() {
    for (first, shown) in
        [(1500, [187, 391, 543, 657]), (1000, [125, 344, 508, 631]), (500, [62, 297, 473, 604])]
    {
        starts(&packets(0, std::iter::once(first).chain(always(2000))), &shown);
    }
    let tick = packets(0, std::iter::once(40).chain(always(2000)));
    starts(&tick, &[5, 254, 440, 580, 685, 764, 823, 867]);
}

#[test]
fn j_a_late_pass() {
    let series = packets(STEADY, [2400, 1600].into_iter().chain(always(2000)));
    starts(&series, &[1050, 987, 991, 993, 995, 996, 997, 998, 998, 999]);
}

#[test]
fn k_step_down() {
    let raw = states(STEADY, CONNS, always(1000));
    let shown: Vec<u64> = raw.iter().copied().map(packets_shown).collect();
    starts(&shown, &[875, 781, 711, 658, 619, 589, 567, 550, 538, 528, 521, 516]);
    assert_eq!(raw[99], 512_000);
}

#[test]
fn rounding_is_half_down() {
    assert_eq!([511, 512, 513, 1023, 1024].map(packets_shown), [0, 0, 1, 1, 1]);
    assert_eq!([1535, 1536, 1537].map(packets_shown), [1, 1, 2]);
    assert_eq!([15, 16, 17, 31, 32].map(bytes_shown), [0, 0, 1, 1, 1]);
}

#[test]
fn sums_may_wrap() {
    assert_eq!(step(0, u64::MAX - 999, 1000, CONNS), 256_000);
}

/// From the largest rate that fits, silence reaches 0 within 150 passes; from 150 Mpps or 70 Gbit/s within 90.
#[test]
fn silence_reaches_zero() {
    for (rate, passes) in [(1 << 62, 150), (1 << 38, 90)] {
        let end = (0..passes).fold(rate, |rate, _| step(rate, 5, 5, CONNS));
        assert_eq!(end, 0, "{rate}");
    }
}

/// Kernel 6.12 under a stream of about 1000 packets a second for 30 s and 20 s of silence, sampled each second: what it summed at each
/// pass gives exactly the rates that it showed.
#[test]
fn recorded_series_is_bit_equal() {
    for recording in [
        include_str!("../../../../tests/data/kernel/rates-2cpu.txt"),
        include_str!("../../../../tests/data/kernel/rates-1cpu.txt"),
    ] {
        let samples =
            recording.lines().filter(|line| line.matches('|').count() == 2 && !line.contains("t/s"));
        let (mut before, mut passes) = (None, 0);
        let (mut last, mut rate) = ([0; 5], [0; 5]);
        for sample in samples {
            let mut parts = sample.split('|').skip(1);
            let mut numbers = || -> [u64; 5] {
                let words = parts.next().unwrap().split_whitespace();
                words.map(|word| word.parse().unwrap()).collect::<Vec<_>>().try_into().unwrap()
            };
            let now = (numbers(), numbers());
            // Passes are two seconds apart: each shows in two samples.
            if before.replace(now) == Some(now) {
                continue;
            }
            let (shown, sums) = now;
            passes += 1;
            for (i, shift) in std::iter::once(CONNS).chain(PACKETS).enumerate() {
                rate[i] = step(rate[i], last[i], sums[i], shift);
                let ours = if shift == BYTES { bytes_shown(rate[i]) } else { packets_shown(rate[i]) };
                assert_eq!(ours, shown[i], "pass {passes}, quantity {i}: {sample}");
            }
            last = sums;
        }
        assert_eq!(passes, 25);
    }
}
