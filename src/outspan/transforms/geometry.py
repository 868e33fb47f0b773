"""Transforms that move pixels: nearest neighbor, black outside, byte for byte as in Pillow."""

import math

import torch
from torch import Tensor

from outspan.shapes import Float64, Images, Int64, PerSample, Places


def rotate(images: Images, degrees: PerSample) -> Images:
    """Rotate about the center, counterclockwise: 0 is the identity."""
    height, width = images.shape[-2:]
    turns = [angle % 360.0 for angle in degrees.tolist()]
    matrices = [_rotation(turn, width, height) for turn in turns]
    out = affine(images, torch.tensor(matrices, dtype=torch.float64).view(-1, 6))
    for quarter in (1, 3) if height == width else ():  # Pillow transposes instead of resampling
        rows = [i for i, turn in enumerate(turns) if turn == 90.0 * quarter]
        out[rows] = images[rows].rot90(quarter, (2, 3))
    return out


def shear_x(images: Images, shear: PerSample) -> Images:
    """Move row y by shear·y columns: 0 is the identity."""
    return affine(images, _matrix(len(images), a1=shear))


def shear_y(images: Images, shear: PerSample) -> Images:
    """Move column x by shear·x rows: 0 is the identity."""
    return affine(images, _matrix(len(images), a3=shear))


def translate_x(images: Images, fraction: PerSample) -> Images:
    """Move the columns by this fraction of the width: 0 is the identity."""
    return affine(images, _matrix(len(images), a2=fraction * images.shape[-1]))


def translate_y(images: Images, fraction: PerSample) -> Images:
    """Move the rows by this fraction of the height: 0 is the identity."""
    return affine(images, _matrix(len(images), a5=fraction * images.shape[-2]))


def horizontal_flip(images: Images) -> Images:
    """Mirror left and right."""
    return images.flip(3)


def vertical_flip(images: Images) -> Images:
    """Mirror top and bottom."""
    return images.flip(2)


def random_crop(images: Images, padding: PerSample, *, place: Places) -> Images:
    """Pad by this fraction of the side with reflection and crop to the original size: 0 is the identity."""
    height, width = images.shape[-2:]
    x = _reflected(width, padding, place[:, 0]).unsqueeze(1)
    y = _reflected(height, padding, place[:, 1]).unsqueeze(2)
    return _fetch(images, x, y)


def affine(images: Images, matrix: Float64[Tensor, "B 6"]) -> Images:
    """Sample each pixel where the matrix maps its center: Pillow's `im.transform(im.size, AFFINE, matrix)`."""
    height, width = images.shape[-2:]
    straight = (matrix[:, 1] == 0) & (matrix[:, 3] == 0)
    fixed = ~straight & _fits_fixed_point(matrix, height, width)
    out = torch.empty_like(images)
    for chosen, walk in ((straight, _walk_straight), (fixed, _walk_fixed), (~straight & ~fixed, _walk_doubles)):
        rows = chosen.nonzero().squeeze(1)
        if len(rows):
            here = rows.to(images.device)
            out[here] = _fetch(images[here], *walk(matrix[rows], height, width, images.device))
    return out


def _rotation(turn: float, width: int, height: int) -> list[float]:
    angle = -math.radians(turn)
    a, b = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return [a, b, a * -x + b * -y + x, -b, a, -b * -x + a * -y + y]


def _matrix(count: int, **changes: PerSample) -> Float64[Tensor, "B 6"]:
    matrix = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(count, 1)
    for name, column in changes.items():
        matrix[:, int(name[1])] = column
    return matrix


def _fits_fixed_point(matrix: Float64[Tensor, "B 6"], height: int, width: int) -> Tensor:
    corners = torch.tensor([[0.0, 0], [width, height], [0, height], [width, 0]], dtype=torch.float64)
    x, y = corners.unsqueeze(1).unbind(2)
    a = matrix.T.unsqueeze(1)
    across, down = x * a[0] + y * a[1] + a[2], x * a[3] + y * a[4] + a[5]
    return ((across.abs() < 32768) & (down.abs() < 32768)).all(0)


def _walk_straight(matrix: Tensor, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions if both off-diagonals are 0: from the first center, += 1.0 in doubles, with the rounding of each sum."""
    x = _accumulate(matrix[:, 2] + 0.5, torch.ones(len(matrix), dtype=torch.float64), width)
    y = _accumulate(matrix[:, 5] + 0.5, torch.ones(len(matrix), dtype=torch.float64), height)
    return x.floor().long().to(device).unsqueeze(1), y.floor().long().to(device).unsqueeze(2)


def _walk_fixed(matrix: Tensor, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions in the usual case: 16.16 fixed point from half-pixel centers."""
    a0, a1, a2, a3, a4, a5 = matrix.unbind(1)
    centred = torch.stack([a0, a1, a2 + a0 * 0.5 + a1 * 0.5, a3, a4, a5 + a3 * 0.5 + a4 * 0.5], dim=1)
    fixed = (centred * 65536.0 + 0.5).floor().long().to(device).view(-1, 6, 1, 1)
    x, y = torch.arange(width, device=device), torch.arange(height, device=device).unsqueeze(1)
    return (
        (fixed[:, 2] + fixed[:, 1] * y + fixed[:, 0] * x) >> 16,
        (fixed[:, 5] + fixed[:, 4] * y + fixed[:, 3] * x) >> 16,
    )


def _walk_doubles(matrix: Tensor, height: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Positions if the image is too large for fixed point: doubles, += along the first column, then along each row."""
    a0, a1, a2, a3, a4, a5 = matrix.unbind(1)
    x = _accumulate(_accumulate(a2 + a1 * 0.5 + a0 * 0.5, a1, height), a0.unsqueeze(1), width)
    y = _accumulate(_accumulate(a5 + a4 * 0.5 + a3 * 0.5, a4, height), a3.unsqueeze(1), width)
    return x.floor().long().to(device), y.floor().long().to(device)


def _accumulate(start: Tensor, step: Tensor, count: int) -> Tensor:
    """Return start, start + step, start + step + step, ... along a new last axis, with the rounding of each sum."""
    terms = step.unsqueeze(-1).expand(*start.shape, count).clone()
    terms[..., 0] = start
    return terms.cumsum(-1)


def _reflected(side: int, padding: PerSample, place: PerSample) -> Int64[Tensor, "B S"]:
    pad = (padding * side + 0.5).long()
    corner = (place * (2 * pad + 1)).long() - pad
    period = max(2 * (side - 1), 1)
    phase = (corner.unsqueeze(1) + torch.arange(side)) % period
    return torch.where(phase < side, phase, period - phase)


def _fetch(images: Images, x: Tensor, y: Tensor) -> Images:
    """Return images[..., y, x], black where x or y is outside."""
    height, width = images.shape[-2:]
    x, y = x.to(images.device), y.to(images.device)
    seen = ((x >= 0) & (x < width) & (y >= 0) & (y < height)).unsqueeze(1)
    index = (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).flatten(1).unsqueeze(1)
    pixels = images.flatten(2).gather(2, index.expand(-1, images.shape[1], -1)).view_as(images)
    return torch.where(seen, pixels, 0)
