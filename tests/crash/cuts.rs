//! Power cuts: the backing and the station's state lie on a filesystem that is shut down without
//! flushing, mounted again, and looked at.

use std::process::Command;
use std::time::Duration;

use crate::common::image::{Format, Image};
use crate::common::{Station, Workspace, count, is_root, skip};
use crate::load::{Acknowledged, Load};
use crate::scene::Scene;

fn mib(format: Format) -> u64 {
    match format {
        Format::Ext4 => 128,
        Format::Xfs => 320,
    }
}

/// Works for a while, cuts the power, and says what had been acknowledged before.
fn cut(image: &Image, ws: Workspace, round: usize) -> Acknowledged {
    image.settle();
    let load = Load::start(&ws.path, 2, true);
    std::thread::sleep(Duration::from_millis(40 + (round as u64 * 61) % 400));
    let acknowledged = load.so_far();
    image.cut(round % 4 == 3);
    ws.kill();
    load.stop();
    acknowledged
}

fn cuts_lose_nothing(format: Format) {
    if !is_root() {
        skip("power cuts", "loop devices need root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), format, mib(format));
    let mut steps = 0;
    for round in 0..count("TRASHFS_POWER_CUTS", 5) {
        let scene = Scene::new(Station::below(&image.path));
        let ws = scene.mount();
        let acknowledged = cut(&image, ws, round);
        image.power_up();
        let what = format!("{format:?}, cut {round}");
        let ws = scene.mount();
        let entries = Scene::entries(&ws);
        acknowledged.assert_kept(&scene, &what);
        let ws = ws.remount();
        assert_eq!(entries, Scene::entries(&ws), "{what}: recovery twice");
        ws.unmount();
        steps += acknowledged.steps;
    }
    assert!(steps > 0, "no load");
    image.check();
}

#[test]
fn power_cuts_on_ext4_lose_nothing() {
    cuts_lose_nothing(Format::Ext4);
}

#[test]
fn power_cuts_on_xfs_lose_nothing() {
    cuts_lose_nothing(Format::Xfs);
}

/// The negative control: a daemon whose fsync does nothing must be caught.
#[test]
fn a_filesystem_without_fsync_is_noticed() {
    if !is_root() {
        skip("power cuts", "loop devices need root");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let image = Image::new(scratch.path(), Format::Ext4, mib(Format::Ext4));
    for round in 0..10 {
        let scene = Scene::new(Station::below(&image.path));
        let mut command = Command::new("strace");
        command
            .args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                "trace=fsync,fdatasync,syncfs",
            ])
            .args(["-e", "inject=fsync,fdatasync,syncfs:retval=0"])
            .arg(env!("CARGO_BIN_EXE_trash"))
            .args(["mount", "-f"])
            .arg(&scene.mounted)
            .arg("--source")
            .arg(&scene.source);
        scene.station.surround(&mut command);
        let ws = scene.station.start(&scene.mounted, command).unwrap();
        let acknowledged = cut(&image, ws, round);
        image.power_up();
        let ws = scene.mount();
        let missing = acknowledged.missing(&scene);
        ws.unmount();
        if !missing.is_empty() {
            return;
        }
    }
    panic!("ten power cuts without fsync lost nothing: the check is blind");
}
