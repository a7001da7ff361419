//! Values as lines of text.

use douse::{HostTensor, Value};
use douse_core::{Scalar, element};

/// Elements shown of a tensor.
const SHOWN: usize = 8;

/// `float32 [2, 3] [0.1, 0.2, ...] min 0.1 mean 0.3 max 0.6`, or the value itself.
pub fn value(value: &Value) -> String {
    match value {
        Value::Tensor(t) => tensor(t),
        other => other.to_string(),
    }
}

fn tensor(tensor: &HostTensor) -> String {
    let elements = element::elements(tensor);
    let shown: Vec<String> = elements.iter().take(SHOWN).map(|s| scalar(*s)).collect();
    let more = if elements.len() > SHOWN { ", ..." } else { "" };
    let mut text = format!("{} {:?}  [{}{more}]", tensor.dtype(), tensor.sizes(), shown.join(", "));
    if elements.len() > 1 && !tensor.dtype().is_complex() {
        let values = elements.iter().map(|s| s.to_f64());
        // NaN is worth seeing: it wins.
        let extreme = |pick: fn(f64, f64) -> f64| {
            values.clone().reduce(|a, b| {
                if a.is_nan() {
                    a
                } else if b.is_nan() {
                    b
                } else {
                    pick(a, b)
                }
            })
        };
        let mean = values.clone().sum::<f64>() / elements.len() as f64;
        let number = |v: Option<f64>| scalar(Scalar::Float(v.unwrap_or(f64::NAN)));
        text += &format!(
            "  min {} mean {} max {}",
            number(extreme(f64::min)),
            scalar(Scalar::Float(mean)),
            number(extreme(f64::max))
        );
    }
    text
}

fn scalar(value: Scalar) -> String {
    let float = |v: f64| {
        let size = v.abs();
        if v == 0.0 || !v.is_finite() || (1e-4..1e7).contains(&size) {
            let text = format!("{v:.5}");
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        } else {
            format!("{v:.4e}")
        }
    };
    match value {
        Scalar::Float(v) => float(v),
        Scalar::Complex(re, im) => format!("{}{}{}i", float(re), if im < 0.0 { "" } else { "+" }, float(im)),
        other => other.to_string(),
    }
}

/// `1.5 MB`, of bytes.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["kB", "MB", "GB", "TB"];
    let mut value = count as f64;
    if count < 1000 {
        return format!("{count} B");
    }
    for unit in UNITS {
        value /= 1000.0;
        if value < 1000.0 {
            return format!("{value:.1} {unit}");
        }
    }
    format!("{value:.0} TB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_and_sizes_read_well() {
        let t = HostTensor::from_f32(&[3], &[1.0, -2.5, 1e-9]).unwrap();
        assert_eq!(value(&Value::Tensor(t)), "float32 [3]  [1, -2.5, 1.0000e-9]  min -2.5 mean -0.5 max 1");
        let t = HostTensor::from_f32(&[2], &[1.0, f32::NAN]).unwrap();
        assert!(value(&Value::Tensor(t)).ends_with("min NaN mean NaN max NaN"));
        let t = HostTensor::from_i64(&[20], &[7; 20]).unwrap();
        assert!(value(&Value::Tensor(t)).contains("7, 7, ...]"));
        assert_eq!(value(&Value::Int(3)), "3");
        assert_eq!([bytes(999), bytes(1500), bytes(2_500_000_000)], ["999 B", "1.5 kB", "2.5 GB"]);
    }
}
