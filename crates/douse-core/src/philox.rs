//! The counter-based generator Philox4x32-10 and the draws PyTorch's CUDA generator makes from it.
//!
//! Philox is from Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011). The split of the
//! counter into offset and subsequence, and the way words become floats, are those cuRAND documents for its Philox
//! generator, which PyTorch's CUDA kernels call.

/// Multipliers and key increments ("Weyl constants") of the paper.
const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// 2^-32 and 2^-53: what a word, or 53 bits, are scaled by.
const UNIT_32: f32 = 1.0 / 4_294_967_296.0;
const UNIT_53: f64 = 1.0 / 9_007_199_254_740_992.0;

/// A position in one of 2^64 subsequences, each of 2^64 blocks of four words, of the stream a seed selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
    block: u64,
    subsequence: u64,
    /// Words of the present block already used, 0 to 3.
    used: usize,
}

impl Philox {
    /// A generator at `offset` words from the start of `subsequence`. PyTorch gives every CUDA thread its own
    /// subsequence and advances the offset by the words each thread has drawn, rounded up to a multiple of four.
    pub const fn new(seed: u64, subsequence: u64, offset: u64) -> Philox {
        Philox { key: [seed as u32, (seed >> 32) as u32], block: offset / 4, subsequence, used: (offset % 4) as usize }
    }

    /// The next four words. At an offset that is no multiple of four they span two blocks.
    pub const fn next4(&mut self) -> [u32; 4] {
        let first = self.words();
        self.advance();
        if self.used == 0 {
            return first;
        }
        let second = self.words();
        let mut out = [0; 4];
        let mut i = 0;
        while i < 4 {
            let from = self.used + i;
            out[i] = if from < 4 { first[from] } else { second[from - 4] };
            i += 1;
        }
        out
    }

    /// The words of the present block, without moving on.
    const fn words(&self) -> [u32; 4] {
        let counter =
            [self.block as u32, (self.block >> 32) as u32, self.subsequence as u32, (self.subsequence >> 32) as u32];
        philox4x32(counter, self.key)
    }

    /// As in cuRAND, the counter is one number of 128 bits: blocks carry into the subsequence.
    const fn advance(&mut self) {
        self.block = self.block.wrapping_add(1);
        if self.block == 0 {
            self.subsequence = self.subsequence.wrapping_add(1);
        }
    }
}

/// The bijection itself: ten rounds on one counter.
pub const fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < ROUNDS {
        let left = MULTIPLIER[0] as u64 * counter[0] as u64;
        let right = MULTIPLIER[1] as u64 * counter[2] as u64;
        counter = [
            (right >> 32) as u32 ^ counter[1] ^ key[0],
            right as u32,
            (left >> 32) as u32 ^ counter[3] ^ key[1],
            left as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    counter
}

/// Uniform in [0, 1). cuRAND draws from (0, 1]; PyTorch turns its 1 into 0.
pub fn uniform_f32(word: u32) -> f32 {
    let open = half_open_f32(word);
    if open == 1.0 { 0.0 } else { open }
}

/// Uniform in [0, 1) with 53 random bits; two words make one draw.
pub fn uniform_f64(low: u32, high: u32) -> f64 {
    let open = half_open_f64(low, high);
    if open == 1.0 { 0.0 } else { open }
}

/// Two independent normals with mean 0 and deviation 1, by Box and Muller's transform.
pub fn normal_f32(first: u32, second: u32) -> [f32; 2] {
    const TURN: f32 = UNIT_32 * (2.0 * std::f32::consts::PI);
    let angle = second as f32 * TURN + TURN / 2.0;
    let radius = (-2.0 * half_open_f32(first).ln()).sqrt();
    [radius * angle.sin(), radius * angle.cos()]
}

/// Two independent normals from the four words of a block.
pub fn normal_f64(words: [u32; 4]) -> [f64; 2] {
    let radius = (-2.0 * half_open_f64(words[0], words[1]).ln()).sqrt();
    let angle = std::f64::consts::PI * 2.0 * half_open_f64(words[2], words[3]);
    [radius * angle.sin(), radius * angle.cos()]
}

/// In (0, 1], as cuRAND draws: the middle of the word's interval, before rounding.
fn half_open_f32(word: u32) -> f32 {
    word as f32 * UNIT_32 + UNIT_32 / 2.0
}

fn half_open_f64(low: u32, high: u32) -> f64 {
    let bits = low as u64 ^ ((high as u64) << 21);
    bits as f64 * UNIT_53 + UNIT_53 / 2.0
}

/// Where PyTorch's elementwise CUDA kernels draw the element `index` of a tensor: thread `t` of `threads` draws
/// `unroll` values (4 of float32, 2 of float64) from each block of subsequence `t`, `threads` elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub subsequence: u64,
    /// Blocks of four words after the offset the kernel was given.
    pub block: u64,
    /// Which of the block's `unroll` values.
    pub lane: u64,
}

impl Place {
    /// `threads` and `unroll` are at least 1; 0 counts as 1.
    pub const fn of(index: u64, threads: u64, unroll: u64) -> Place {
        let threads = if threads == 0 { 1 } else { threads };
        let unroll = if unroll == 0 { 1 } else { unroll };
        let stride = index / threads;
        Place { subsequence: index % threads, block: stride / unroll, lane: stride % unroll }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with the paper's Random123 library.
    #[test]
    fn known_answers() {
        let all = u32::MAX;
        let cases = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([all; 4], [all; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in cases {
            assert_eq!(philox4x32(counter, key), expected);
        }
    }

    #[test]
    fn seed_subsequence_and_offset_are_key_and_counter() {
        let mut generator = Philox::new(0x299f_31d0_a409_3822, 0x0370_7344_1319_8a2e, 0);
        generator.block = 0x85a3_08d3_243f_6a88;
        assert_eq!(generator.next4(), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    #[test]
    fn an_offset_skips_words() {
        let mut whole = Philox::new(7, 3, 0);
        let words: Vec<u32> = (0..4).flat_map(|_| whole.next4()).collect();
        for offset in 0..8 {
            let mut skipped = Philox::new(7, 3, offset as u64);
            assert_eq!(skipped.next4(), words[offset..offset + 4]);
            assert_eq!(skipped.next4(), words[offset + 4..offset + 8]);
        }
    }

    #[test]
    fn the_last_block_carries_into_the_subsequence() {
        let mut last = Philox { block: u64::MAX, ..Philox::new(1, 5, 0) };
        last.next4();
        assert_eq!(last, Philox::new(1, 6, 0));
    }

    #[test]
    fn uniforms_leave_out_one() {
        assert_eq!(uniform_f32(u32::MAX), 0.0);
        assert_eq!(uniform_f32(0), 2f32.powi(-33));
        assert_eq!(uniform_f32(1 << 31), 0.5);
        assert_eq!(uniform_f64((1 << 21) - 1, u32::MAX), 0.0);
        assert_eq!(uniform_f64(0, 0), 2f64.powi(-54));
    }

    #[test]
    fn normals_have_mean_zero_and_deviation_one() {
        let mut generator = Philox::new(42, 0, 0);
        let (mut sum, mut square, mut sum64, mut square64) = (0.0, 0.0, 0.0, 0.0);
        let blocks = 20_000;
        for _ in 0..blocks {
            let words = generator.next4();
            for z in normal_f32(words[0], words[1]) {
                sum += z as f64;
                square += (z * z) as f64;
            }
            for z in normal_f64(words) {
                sum64 += z;
                square64 += z * z;
            }
        }
        let n = 2.0 * blocks as f64;
        assert!((sum / n).abs() < 0.02 && (square / n - 1.0).abs() < 0.03);
        assert!((sum64 / n).abs() < 0.02 && (square64 / n - 1.0).abs() < 0.03);
        assert!(normal_f32(0, 0).iter().chain(&normal_f32(u32::MAX, u32::MAX)).all(|z| z.is_finite()));
    }

    #[test]
    fn elements_are_dealt_to_threads_in_strides() {
        assert_eq!(Place::of(5, 256, 4), Place { subsequence: 5, block: 0, lane: 0 });
        assert_eq!(Place::of(256 * 3 + 5, 256, 4), Place { subsequence: 5, block: 0, lane: 3 });
        assert_eq!(Place::of(256 * 4 + 5, 256, 4), Place { subsequence: 5, block: 1, lane: 0 });
        assert_eq!(Place::of(256 * 2, 256, 2), Place { subsequence: 0, block: 1, lane: 0 });
    }
}
