//! The figures as a picture.

use std::path::Path;

use plotters::prelude::*;

use super::figures::{Mode, Results};
use super::source::Temperature;
use super::table;
use crate::Error;

/// Draws the sender's CPU per GB over the size, lent and copied, warm and cold.
pub fn draw(results: &Results, path: &Path) -> Result<(), Error> {
    let explain = |e: &dyn std::error::Error| format!("{}: {e}", path.display());
    let mut sizes: Vec<usize> = results.cells.iter().map(|c| c.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let at = |size: usize| sizes.iter().position(|s| *s == size).unwrap_or(0) as f64;
    let highest = results.cells.iter().map(|c| c.median(Mode::Copy, |s| s.process)).fold(0.0, f64::max);
    let root = SVGBackend::new(path, (900, 520)).into_drawing_area();
    root.fill(&WHITE).map_err(|e| explain(&e))?;
    let caption = format!("CPU seconds of the sender per GB, device: {}", results.device);
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 20))
        .margin(15)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(-0.2..sizes.len() as f64 - 0.8, 0.0..highest * 1.1)
        .map_err(|e| explain(&e))?;
    let label = |x: &f64| {
        let near = x.round();
        let exact = (x - near).abs() < 0.01 && near >= 0.0;
        sizes.get(near as usize).filter(|_| exact).map_or(String::new(), |s| table::size(*s))
    };
    chart
        .configure_mesh()
        .x_labels(sizes.len() * 2)
        .x_label_formatter(&label)
        .x_desc("bytes per call")
        .y_desc("CPU s / GB")
        .draw()
        .map_err(|e| explain(&e))?;
    let lines = [
        (Temperature::Cold, Mode::Copy, RED),
        (Temperature::Warm, Mode::Copy, RGBColor(240, 140, 100)),
        (Temperature::Cold, Mode::Lend, BLUE),
        (Temperature::Warm, Mode::Lend, RGBColor(100, 160, 240)),
    ];
    for (temperature, mode, colour) in lines {
        let cells = results.cells.iter().filter(|c| c.temperature == temperature);
        let points = cells.map(|c| (at(c.size), c.median(mode, |s| s.process)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))
            .map_err(|e| explain(&e))?
            .label(format!("{mode}, {temperature} source"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE)
        .border_style(BLACK)
        .draw()
        .map_err(|e| explain(&e))?;
    root.present().map_err(|e| explain(&e))?;
    Ok(())
}
