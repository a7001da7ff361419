//! The four float8 formats: decoding to float32 by table, encoding from float32 with PyTorch's rounding and overflow.
//!
//! The formats are those of Micikevicius et al., "FP8 formats for deep learning" (2022), and, with `fnuz`, of Noune et
//! al., "8-bit numerical formats for deep neural networks" (2022).

/// What tells one float8 format from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Explicit bits of the significand.
    mantissa: u32,
    /// The exponent of the smallest normal number, which subnormals share.
    min_exponent: i32,
    /// The code of the largest finite number.
    max: u8,
    /// The code, without sign, of what is too large, and of infinity.
    overflow: u8,
    /// The code, without sign, a NaN becomes.
    nan: u8,
    /// `uz`: no negative zero; its code is the only NaN.
    unsigned_zero: bool,
}

pub const E4M3FN: Format =
    Format { mantissa: 3, min_exponent: -6, max: 0x7E, overflow: 0x7E, nan: 0x7F, unsigned_zero: false };
pub const E5M2: Format =
    Format { mantissa: 2, min_exponent: -14, max: 0x7B, overflow: 0x7C, nan: 0x7F, unsigned_zero: false };
pub const E4M3FNUZ: Format =
    Format { mantissa: 3, min_exponent: -7, max: 0x7F, overflow: 0x80, nan: 0x80, unsigned_zero: true };
pub const E5M2FNUZ: Format =
    Format { mantissa: 2, min_exponent: -15, max: 0x7F, overflow: 0x80, nan: 0x80, unsigned_zero: true };

static E4M3FN_VALUES: [f32; 256] = values(&E4M3FN);
static E5M2_VALUES: [f32; 256] = values(&E5M2);
static E4M3FNUZ_VALUES: [f32; 256] = values(&E4M3FNUZ);
static E5M2FNUZ_VALUES: [f32; 256] = values(&E5M2FNUZ);

pub fn e4m3fn_to_f32(code: u8) -> f32 {
    E4M3FN_VALUES[code as usize]
}

pub fn e5m2_to_f32(code: u8) -> f32 {
    E5M2_VALUES[code as usize]
}

pub fn e4m3fnuz_to_f32(code: u8) -> f32 {
    E4M3FNUZ_VALUES[code as usize]
}

pub fn e5m2fnuz_to_f32(code: u8) -> f32 {
    E5M2FNUZ_VALUES[code as usize]
}

/// To nearest, ties to even; what rounds above 448, and infinity, becomes 448, as PyTorch does from 2.15 on and CUDA's
/// saturating conversion always did (earlier PyTorch made it NaN on the CPU).
pub fn e4m3fn_from_f32(x: f32) -> u8 {
    encode(&E4M3FN, x)
}

/// To nearest, ties to even; what rounds above 57344 becomes infinity.
pub fn e5m2_from_f32(x: f32) -> u8 {
    encode(&E5M2, x)
}

/// To nearest, ties to even; what rounds above 240, and infinity, becomes NaN.
pub fn e4m3fnuz_from_f32(x: f32) -> u8 {
    encode(&E4M3FNUZ, x)
}

/// To nearest, ties to even; what rounds above 57344, and infinity, becomes NaN.
pub fn e5m2fnuz_from_f32(x: f32) -> u8 {
    encode(&E5M2FNUZ, x)
}

impl Format {
    /// The value of a code; exact, since float32 holds every float8.
    const fn decode(&self, code: u8) -> f32 {
        if self.unsigned_zero && code == 0x80 {
            return f32::NAN;
        }
        let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
        let magnitude = code & 0x7F;
        if magnitude > self.max {
            return if magnitude == self.overflow && self.overflow != self.nan {
                sign * f32::INFINITY
            } else {
                f32::NAN
            };
        }
        let field = (magnitude >> self.mantissa) as i32;
        let fraction = (magnitude & ((1 << self.mantissa) - 1)) as i32;
        let (significand, exponent) = match field {
            0 => (fraction, self.min_exponent),
            _ => (fraction + (1 << self.mantissa), self.min_exponent + field - 1),
        };
        sign * significand as f32 * power_of_two(exponent - self.mantissa as i32)
    }
}

/// The code nearest to `x`. Counting in units of the last place makes rounding up into the next exponent, from
/// subnormal to normal, or past the largest number, nothing special: codes of one sign are consecutive.
#[inline]
fn encode(format: &Format, x: f32) -> u8 {
    /// Adding this to a float32 below 2^22 rounds it to an integer, ties to even, in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let sign = (x.to_bits() >> 24) as u8 & 0x80;
    if x.is_nan() {
        return format.nan | sign;
    }
    let magnitude = x.abs();
    let exponent = ((magnitude.to_bits() >> 23) as i32 - 127).max(format.min_exponent);
    let scaled = magnitude * power_of_two(format.mantissa as i32 - exponent.min(126));
    let units = (scaled + ROUND).to_bits() - ROUND.to_bits();
    let code = units as i64 + (((exponent - format.min_exponent) as i64) << format.mantissa);
    match code {
        0 if format.unsigned_zero => 0,
        _ if code > format.max as i64 => format.overflow | sign,
        _ => code as u8 | sign,
    }
}

const fn values(format: &Format) -> [f32; 256] {
    let mut all = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        all[code] = format.decode(code as u8);
        code += 1;
    }
    all
}

/// 2^exponent, for exponents of normal float32 numbers.
const fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Format; 4] = [E4M3FN, E5M2, E4M3FNUZ, E5M2FNUZ];

    #[test]
    fn codes_survive_a_round_trip() {
        for format in ALL {
            for code in 0..=255u8 {
                let value = format.decode(code);
                let back = encode(&format, value);
                if value.is_nan() {
                    assert!(format.decode(back).is_nan());
                } else {
                    assert_eq!(back, code, "{format:?} {code:#x} {value}");
                }
            }
        }
    }

    #[test]
    fn known_values() {
        let cases: [(Format, u8, f32); 16] = [
            (E4M3FN, 0x7E, 448.0),
            (E4M3FN, 0x38, 1.0),
            (E4M3FN, 0x01, 0.001953125),
            (E4M3FN, 0x80, -0.0),
            (E5M2, 0x7B, 57344.0),
            (E5M2, 0x7C, f32::INFINITY),
            (E5M2, 0xFC, f32::NEG_INFINITY),
            (E5M2, 0x3C, 1.0),
            (E5M2, 0x01, 1.525_878_9e-5),
            (E4M3FNUZ, 0x7F, 240.0),
            (E4M3FNUZ, 0x40, 1.0),
            (E4M3FNUZ, 0x01, 0.0009765625),
            (E5M2FNUZ, 0x7F, 57344.0),
            (E5M2FNUZ, 0x40, 1.0),
            (E5M2FNUZ, 0x01, 7.629_394_5e-6),
            (E5M2FNUZ, 0xFF, -57344.0),
        ];
        for (format, code, value) in cases {
            assert_eq!(format.decode(code).to_bits(), value.to_bits(), "{format:?} {code:#x}");
        }
        assert!(e4m3fn_to_f32(0x7F).is_nan() && e5m2_to_f32(0x7D).is_nan());
        assert!(e4m3fnuz_to_f32(0x80).is_nan() && e5m2fnuz_to_f32(0x80).is_nan());
    }

    /// Halfway between neighbours goes to the even code; a hair to either side goes to that side.
    #[test]
    fn rounds_to_nearest_ties_to_even() {
        for format in ALL {
            for code in 0..format.max {
                let middle = (format.decode(code) + format.decode(code + 1)) / 2.0;
                let even = code + (code & 1);
                assert_eq!(encode(&format, middle), even, "{format:?} {middle}");
                assert_eq!(encode(&format, middle.next_down()), code);
                assert_eq!(encode(&format, middle.next_up()), code + 1);
                if even != 0 {
                    assert_eq!(encode(&format, -middle), even | 0x80);
                }
            }
        }
    }

    #[test]
    fn overflow_and_the_special_values() {
        assert_eq!(e4m3fn_from_f32(464.0), 0x7E);
        assert_eq!(e4m3fn_from_f32(1e30), 0x7E);
        assert_eq!(e4m3fn_from_f32(f32::NEG_INFINITY), 0xFE);
        assert_eq!(e4m3fn_from_f32(-f32::NAN), 0xFF);
        assert_eq!(e5m2_from_f32(61439.0), 0x7B);
        assert_eq!(e5m2_from_f32(61440.0), 0x7C);
        assert_eq!(e5m2_from_f32(f32::MIN), 0xFC);
        assert_eq!(e5m2_from_f32(f32::NAN), 0x7F);
        assert_eq!(e4m3fnuz_from_f32(248.0), 0x80);
        assert_eq!(e4m3fnuz_from_f32(-1e30), 0x80);
        assert_eq!(e5m2fnuz_from_f32(f32::INFINITY), 0x80);
        assert_eq!(e5m2fnuz_from_f32(-0.0), 0);
        assert_eq!(e4m3fnuz_from_f32(-1e-30), 0);
        assert_eq!(e4m3fn_from_f32(-1e-40), 0x80);
    }
}
