//! The oscillating ranges of Bessel's and Airy's functions, as PyTorch computes them.
//!
//! There the functions are a phase's cosine and sine, each times a slowly varying factor for which Cephes (Moshier, 1989)
//! has rational fits. The denominators of the sine's factor, and both of Airy's, are meant to have a leading
//! coefficient 1 that the tables leave out. PyTorch reads the tables as complete, which costs up to 1e-6 near the range's
//! lower end; doing the same is the only way to agree with it. The coefficients are Cephes'.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_4, PI};

/// The x above which `first_kind` and `second_kind` hold.
pub const FROM: f64 = 5.0;

/// The x below which Airy's function is `airy(-x)`.
pub const AIRY_BELOW: f64 = -2.09;

/// A ratio of two polynomials, highest power first.
struct Fit {
    above: &'static [f64],
    below: &'static [f64],
}

/// The factors of the cosine and, divided by x / 5, of the sine, in powers of 25 / x^2.
struct Phase {
    p: Fit,
    q: Fit,
}

/// For orders 0 and 1.
const PHASES: [Phase; 2] = [
    Phase {
        p: Fit {
            above: &[
                0.000_796_936_729_297_347_1,
                0.082_835_239_210_744_08,
                1.239_533_716_464_143,
                5.447_250_030_587_687,
                8.747_165_001_998_17,
                5.303_240_382_353_949,
                1.0,
            ],
            below: &[
                0.000_924_408_810_558_863_7,
                0.085_628_847_435_447_45,
                1.253_527_439_010_589_5,
                5.470_977_403_304_171,
                8.761_908_832_370_695,
                5.306_052_882_353_947,
                1.0,
            ],
        },
        q: Fit {
            above: &[
                -0.011_366_383_889_846_916,
                -1.282_527_186_705_093_1,
                -19.553_954_425_773_597,
                -93.206_015_212_376_83,
                -177.681_167_980_488_06,
                -147.077_505_154_951_18,
                -51.410_532_676_659_93,
                -6.050_143_506_007_285,
            ],
            below: &[
                64.317_825_611_817_8,
                856.430_025_976_980_6,
                3_882.401_836_054_016_3,
                7_240.467_741_956_525,
                5_930.727_011_873_169,
                2_062.093_316_603_278_3,
                242.005_740_240_291_4,
            ],
        },
    },
    Phase {
        p: Fit {
            above: &[
                0.000_762_125_616_208_173_1,
                0.073_139_705_694_091_76,
                1.127_196_081_296_849_3,
                5.112_079_511_468_076,
                8.424_045_901_417_724,
                5.214_515_986_823_615,
                1.0,
            ],
            below: &[
                0.000_571_323_128_072_548_7,
                0.068_845_590_875_449_54,
                1.105_142_326_340_617,
                5.073_863_861_286_015,
                8.399_855_543_276_042,
                5.209_828_486_823_619,
                1.0,
            ],
        },
        q: Fit {
            above: &[
                0.051_086_259_475_017_66,
                4.982_138_729_512_334,
                75.823_828_413_254_53,
                366.779_609_360_150_8,
                710.856_304_998_926_1,
                597.489_612_400_613_6,
                211.688_757_100_572_13,
                25.207_020_585_802_372,
            ],
            below: &[
                74.237_327_703_567_52,
                1_056.448_860_382_628_3,
                4_986.410_583_376_536,
                9_562.318_924_047_562,
                7_997.041_604_473_507,
                2_826.192_785_176_390_8,
                336.093_607_810_698_3,
            ],
        },
    },
];

/// Of Airy's factors, in powers of the inverse square of zeta: the sine's beyond 1, and the cosine's.
const AIRY_SINE: Fit = Fit {
    above: &[
        -0.131_696_323_418_331_8,
        -0.626_456_544_431_912_3,
        -0.693_158_036_036_933_5,
        -0.279_779_981_545_119_1,
        -0.049_190_013_260_950_03,
        -0.004_062_659_235_948_854,
        -0.000_159_276_496_239_262_1,
        -2.776_491_081_552_329e-06,
        -1.677_876_984_891_146_5e-08,
    ],
    below: &[
        13.356_042_070_655_324,
        32.682_503_279_522_464,
        26.736_704_094_149_957,
        9.187_074_029_072_596,
        1.475_291_467_716_664_2,
        0.115_687_173_795_188_04,
        0.004_402_916_416_152_112,
        7.547_203_482_874_142e-05,
        4.518_500_929_705_803_5e-07,
    ],
};
const AIRY_COSINE: Fit = Fit {
    above: &[
        0.019_733_993_209_168_57,
        0.391_103_029_615_688_27,
        1.065_798_975_995_955_9,
        0.939_169_229_816_650_2,
        0.351_465_656_105_547_64,
        0.063_388_891_962_892_55,
        0.005_858_041_130_483_885,
        0.000_282_851_600_836_737,
        6.987_936_699_972_61e-06,
        8.117_892_395_543_892e-08,
        3.415_517_847_659_236e-10,
    ],
    below: &[
        9.308_929_080_774_42,
        19.835_292_871_831_214,
        15.564_662_893_286_462,
        5.476_860_694_229_755,
        0.954_293_611_618_961_9,
        0.086_458_082_635_239_21,
        0.004_126_565_238_242_226,
        0.000_101_259_085_116_509_14,
        1.171_667_332_144_135_2e-06,
        4.918_345_700_629_3e-09,
    ],
};

impl Fit {
    fn at(&self, x: f64) -> f64 {
        horner(self.above, x) / horner(self.below, x)
    }
}

fn horner(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().fold(0.0, |sum, c| sum * x + c)
}

/// J of order 0 or 1, x above 5.
pub fn first_kind(x: f64, order: usize) -> f64 {
    let (cosine, sine, angle) = phase(x, order);
    cosine * angle.cos() - sine * angle.sin()
}

/// Y of order 0 or 1, x above 5.
pub fn second_kind(x: f64, order: usize) -> f64 {
    let (cosine, sine, angle) = phase(x, order);
    cosine * angle.sin() + sine * angle.cos()
}

/// The factors of cosine and sine, and the angle. Any order but 0 is taken for 1.
fn phase(x: f64, order: usize) -> (f64, f64, f64) {
    let [zero, one] = &PHASES;
    let (fits, shift) = if order == 0 { (zero, FRAC_PI_4) } else { (one, 3.0 * FRAC_PI_4) };
    let z = 25.0 / (x * x);
    let amplitude = (FRAC_2_PI / x).sqrt();
    (amplitude * fits.p.at(z), amplitude * fits.q.at(z) * 5.0 / x, x - shift)
}

/// Ai(-x), x above 2.09.
pub fn airy(x: f64) -> f64 {
    let zeta = 2.0 / 3.0 * x * x.sqrt();
    let (z, angle) = (1.0 / zeta, zeta + FRAC_PI_4);
    let square = z * z;
    let sine = angle.sin() * (1.0 + square * AIRY_SINE.at(square));
    let cosine = angle.cos() * z * AIRY_COSINE.at(square);
    (sine - cosine) / (PI * x.sqrt()).sqrt()
}
