/* Every picture is in the page once, however many lists have found it. */
var pictures = JSON.parse(document.getElementById("pictures").textContent);
function givePictures(root) {
  root.querySelectorAll("img[data-picture]").forEach(function (image) {
    image.src = pictures[image.dataset.picture][0];
  });
}
document.querySelectorAll("details").forEach(function (part) {
  part.addEventListener("toggle", function () { if (part.open) givePictures(part); });
});
document.querySelectorAll(".ask, .sides").forEach(function (part) {
  if (!part.closest("details:not([open])")) givePictures(part);
});
